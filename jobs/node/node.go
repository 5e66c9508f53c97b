// Package node is what a worker does for its engine beside jobs: it keeps the engine and the tables alike, watches the
// disk, fills the pool, connects the networks of sandboxes, measures them, and removes outputs and images that nobody
// needs any more.
//
// Each of these is a type with a Run that goes on until the worker's life ends, and does nothing where the provider
// lacks the ability.
package node

import (
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/jobs/loop"
	"sandyard/jobs/queue"
	"sandyard/jobs/security"
	"sandyard/models"
	"sandyard/providers"
)

// Base is what they all need.
type Base struct {
	Store    *models.Store
	Queue    *queue.Queue
	Provider providers.Provider
	Node     models.Node // as it was registered
	Security *security.Counter
	Metrics  *Metrics
	Log      *slog.Logger
	// Life is that of the loops; Patience ends when a worker that stops waits for nothing any more.
	Life, Patience *loop.Life
}

// Metrics count what is done for an engine.
type Metrics struct {
	reconciled *prometheus.CounterVec
	diskFree   prometheus.Gauge
}

// NewMetrics registers the metrics of a node.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		diskFree: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sandyard_disk_free_bytes",
			Help: "Free space of the disk that holds sandboxes and images; NaN if unknown.",
		}),
		reconciled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandyard_reconciled_total",
			Help: "Repaired differences between an engine and the database: orphans removed, sandboxes lost, " +
				"states repaired, and unused images, pool containers, guest volumes and outputs removed.",
		}, []string{"what"}),
	}
	for _, what := range kindsOfDifference() {
		m.reconciled.WithLabelValues(what)
	}
	m.diskFree.Set(math.NaN())
	reg.MustRegister(m.reconciled, m.diskFree)
	return m
}
