package jobs

import (
	"context"
	"errors"
	"slices"

	"sandyard/egress"
	"sandyard/models"
	"sandyard/providers"
)

// canMake refuses a sandbox that a provider cannot make as it is wished for.
func canMake(can providers.Capabilities, box *models.Sandbox) error {
	policy, err := PolicyOf(box.Egress)
	if err != nil {
		return err
	}
	switch {
	case policy.Off():
	case can.Network == providers.Unsupported:
		return invalid("network", "provider %s gives sandboxes no network; leave network and egress out", can.Provider)
	case can.Network == providers.Native && !policy.Equal(egress.Public()):
		return invalid("egress", "provider %s opens the network as a whole or not at all; use network in place of egress", can.Provider)
	}
	if can.Pause != providers.Unsupported {
		return nil
	}
	if box.OnTimeout == "pause" {
		return invalid("on_timeout", "provider %s cannot pause sandboxes; use delete", can.Provider)
	}
	return nil
}

// supports refuses a job that the sandbox's provider cannot run, before it is written down. What is not known yet the worker
// finds out.
func (c *Client) supports(ctx context.Context, sandbox string, args Args, o Options) error {
	lacking := func(can providers.Capabilities) string { return lacks(can, args) }
	if !slices.ContainsFunc(c.catalog.Able, func(can providers.Capabilities) bool { return lacking(can) != "" }) {
		return nil
	}
	box, err := c.store.Sandbox(ctx, o.TenantID, sandbox)
	if errors.Is(err, models.ErrNotFound) {
		return nil // the submission says it
	}
	if err != nil {
		return err
	}
	if what := lacking(c.catalog.able(box.Provider)); what != "" {
		return providers.Errorf(providers.NotSupported, "provider %s of this sandbox does not support %s; GET /v1/providers says what each provider can do",
			box.Provider, what)
	}
	return nil
}

// lacks says what a provider would have to support for a job and does not; empty = nothing.
func lacks(can providers.Capabilities, args Args) string {
	background := args.Kind() == models.KindExecWait || args.Kind() == models.KindExecStdin || args.Kind() == models.KindExecSignal ||
		args.Kind() == models.KindExecDelete
	code := args.Kind() == models.KindCode || args.Kind() == models.KindCodeCreate || args.Kind() == models.KindCodeDelete
	stdin := false
	if e, ok := args.(*Exec); ok {
		background = background || e.Background
		stdin = e.Stdin != ""
	}
	_, port := args.(*Port)
	_, policy := args.(*SetEgress)
	for _, need := range []struct {
		of      bool
		support providers.Support
		what    string
	}{
		{args.Kind() == models.KindPause || args.Kind() == models.KindResume, can.Pause, "pausing"},
		{background, can.Background, "background execs"},
		{code, can.Code, "code contexts"},
		{stdin, can.Stdin, "standard input"},
		{port, can.Ports, "ports"},
		{args.Kind() == kindProcessList || args.Kind() == kindProcessSignal, can.Processes, "lists of processes"},
	} {
		if need.of && need.support == providers.Unsupported {
			return need.what
		}
	}
	if policy && (can.Network == providers.Unsupported || can.Network == providers.Native) {
		return "changing the egress policy of a running sandbox"
	}
	return ""
}
