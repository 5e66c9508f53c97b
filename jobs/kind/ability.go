package kind

import (
	"sandyard/providers"
)

// ability is what a provider may have to support for a job, in the words of an error.
type ability string

const (
	pausing    ability = "pausing"
	background ability = "background execs"
	code       ability = "code contexts"
	stdin      ability = "standard input"
	ports      ability = "ports"
	processes  ability = "lists of processes"
	policies   ability = "changing the egress policy of a running sandbox"
)

// lackedBy says whether a provider does not support it.
func (n ability) lackedBy(can providers.Capabilities) bool {
	switch n {
	case pausing:
		return can.Pause == providers.Unsupported
	case background:
		return can.Background == providers.Unsupported
	case code:
		return can.Code == providers.Unsupported
	case stdin:
		return can.Stdin == providers.Unsupported
	case ports:
		return can.Ports == providers.Unsupported
	case processes:
		return can.Processes == providers.Unsupported
	case policies: // one that opens the network as a whole does so once
		return can.Network == providers.Unsupported || can.Network == providers.Native
	}
	return false
}

// Lacks says what a provider would have to support for a job and does not; empty = nothing.
func Lacks(can providers.Capabilities, a Args) string {
	all := []ability{Of(a).needs}
	if e, ok := a.(*Exec); ok {
		if e.Background {
			all = append(all, background)
		}
		if e.Stdin != "" {
			all = append(all, stdin)
		}
	}
	for _, n := range all {
		if n.lackedBy(can) {
			return string(n)
		}
	}
	return ""
}
