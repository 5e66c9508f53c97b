package kind

import (
	"encoding/json"
	"errors"
	"fmt"

	"sandyard/egress"
	"sandyard/models"
)

// NameEgress is the kind of job that changes the egress policy.
const NameEgress = "egress"

// SetEgress changes where the sandbox may connect to. Its place in the sandbox's order counts: what was submitted
// before it still runs under the old policy. Connections that the new one does not allow are cut.
type SetEgress struct {
	egress.Policy
}

// SetEgressResult is the policy that holds from now on.
type SetEgressResult struct {
	Egress egress.Policy `json:"egress"`
}

// Kind implements Args.
func (*SetEgress) Kind() string { return NameEgress }

// Validate implements Args.
func (s *SetEgress) Validate() error { return CheckPolicy("", s.Policy) }

// CheckPolicy says what is wrong with a policy whose fields are called at + their names.
func CheckPolicy(at string, p egress.Policy) error {
	_, err := p.Compile()
	if entry, ok := errors.AsType[*egress.EntryError](err); ok {
		return Invalid(at+entry.Field, "%s", entry.Message)
	}
	return err
}

// PolicyText is nil for a policy that allows nothing.
func PolicyText(p egress.Policy) (json.RawMessage, error) {
	if p.Off() {
		return nil, nil
	}
	return json.Marshal(p)
}

// EgressOf is a sandbox's policy; nil = it may connect to nowhere.
func EgressOf(box models.Sandbox) *egress.Policy {
	p, err := PolicyOf(box.Egress)
	if err != nil || p.Off() { // one that cannot be read allows nothing
		return nil
	}
	return &p
}

// PolicyOf reads a sandbox's stored policy.
func PolicyOf(text json.RawMessage) (egress.Policy, error) {
	var p egress.Policy
	if len(text) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("read the egress policy: %w", err)
	}
	return p, nil
}
