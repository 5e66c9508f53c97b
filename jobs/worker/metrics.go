package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"sandyard/jobs/node"
	"sandyard/models"
)

// Metrics counts what a worker does.
type Metrics struct {
	duration *prometheus.HistogramVec
	wait     *prometheus.HistogramVec
	node     *node.Metrics
	there    prometheus.Gauge
}

// NewMetrics registers a worker's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	m := &Metrics{
		node: node.NewMetrics(reg),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandyard_job_duration_seconds",
			Help: "Time from the claim to the end of a job's last attempt.", Buckets: buckets,
		}, []string{"kind", "outcome"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandyard_job_queue_seconds",
			Help: "Time from a job's submission to its first claim.", Buckets: buckets,
		}, []string{"kind"}),
		there: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sandyard_provider_available", Help: "1 if the provider answers and takes the operator's key, else 0.",
		}),
	}
	m.available(true)
	reg.MustRegister(m.duration, m.wait, m.there)
	return m
}

// available shows whether the provider can be used.
func (m *Metrics) available(is bool) {
	m.there.Set(map[bool]float64{true: 1}[is])
}

func (m *Metrics) observe(o models.Outcome, j models.Job) {
	m.duration.WithLabelValues(o.Kind, string(o.State)).Observe(o.Provider.Seconds())
	if j.StartedAt != nil {
		m.wait.WithLabelValues(o.Kind).Observe(j.StartedAt.Sub(j.QueuedAt).Seconds())
	}
}
