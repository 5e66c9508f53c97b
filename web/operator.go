package web

import (
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sandyard/jobs"
	"sandyard/models"
)

// addOperator adds the operators' pages.
func (s *Server) addOperator(c Config) {
	metrics := []fiber.Handler{adaptor.HTTPHandler(promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))}
	if !c.PublicMetrics {
		metrics = append([]fiber.Handler{s.needLogin(models.ScopeOperator)}, metrics...)
	}
	s.app.Get("/metrics", metrics...)
	monitor := jobs.NewMonitor("/monitor", c.Redis)
	s.closers = append(s.closers, monitor.Close)
	s.app.Use("/monitor", s.needLogin(models.ScopeOperator), compress.New(), adaptor.HTTPHandler(monitor))
}
