package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/netguard"
)

// newEgress makes what connects a worker's sandboxes with the outside, but never with what is in closed.
func newEgress(c Egress, closed *netguard.Services, p *Parts, log *slog.Logger) *egress.Server {
	return egress.New(egress.Config{
		Guard: netguard.Rules{Deny: c.EgressDeny, Own: closed, Allow: c.EgressAllow},
		Policy: func(ctx context.Context, sandboxID string) (egress.Policy, error) {
			text, err := p.Store.Egress(ctx, sandboxID)
			if err != nil {
				return egress.Policy{}, err
			}
			return kind.PolicyOf(text)
		},
		Connections: c.EgressConnections, BytesPerSecond: c.EgressRate, Idle: c.EgressIdle, Log: log,
	})
}

// countEgress shows what sandboxes use of the outside.
func countEgress(reg *prometheus.Registry, s *egress.Server) {
	count := func(name, help string, of func(egress.Totals) int64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(of(s.Totals())) }))
	}
	count("sandyard_egress_connections_total", "Connections of sandboxes to the outside.",
		func(t egress.Totals) int64 { return t.Connections })
	count("sandyard_egress_denied_total", "Outbound connections that were denied.",
		func(t egress.Totals) int64 { return t.Denied })
	count("sandyard_egress_sent_bytes_total", "Bytes from sandboxes to the outside.",
		func(t egress.Totals) int64 { return t.Sent })
	count("sandyard_egress_received_bytes_total", "Bytes from the outside to sandboxes.",
		func(t egress.Totals) int64 { return t.Received })
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sandyard_egress_open", Help: "Connections of sandboxes to the outside now.",
	}, func() float64 { return float64(s.Totals().Open) }))
}
