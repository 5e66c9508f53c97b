package web

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sandyard/jobs/queue"
	"sandyard/models"
	"sandyard/web/middleware"
)

// addOperator adds the operators' pages.
func (s *Server) addOperator(c Config) {
	metrics := []fiber.Handler{middleware.DropBody, standard(promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))}
	if !c.PublicMetrics {
		metrics = append([]fiber.Handler{s.mw.NeedLogin(models.ScopeOperator)}, metrics...)
	}
	s.app.Get("/metrics", metrics...)
	monitor := queue.NewMonitor("/monitor", c.Redis)
	s.closers = append(s.closers, monitor.Close)
	s.app.Use("/monitor", s.mw.NeedLogin(models.ScopeOperator), s.mw.TakeBody, compress.New(), standard(monitor))
}

// standard serves with a handler of net/http. It runs in a goroutine of the adaptor's, so its panics are caught there,
// and gets a context that outlives the connection's, which races with Shutdown.
func standard(h http.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var caught error
		ctx := c.UserContext()
		err := adaptor.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if p := recover(); p != nil {
					caught = middleware.Panicked(p)
				}
			}()
			h.ServeHTTP(w, r.WithContext(ctx))
		}))(c)
		if err != nil {
			return err
		}
		return caught
	}
}
