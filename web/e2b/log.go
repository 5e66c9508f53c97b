package e2b

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
)

// Bounds of what is asked of a log.
const (
	maxLog    = 1000
	maxSearch = 256
)

// logDoc is one entry of a sandbox's log.
type logDoc struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"` // info, or error where the job did not succeed
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// logs are the ends of the sandbox's jobs, from cursor on, oldest first, or backwards from there. What programs write
// is not in any log.
func (e *Server) logs(c *fiber.Ctx) error {
	f, err := readLogQuery(c)
	if err != nil {
		return err
	}
	entries, err := e.entries(c, f)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"logs": entries})
}

// logsV1 are the logs that older clients know.
func (e *Server) logsV1(c *fiber.Ctx) error {
	var f models.EndFilter
	var err error
	if f.From, err = readMoment(c, "start"); err != nil {
		return err
	}
	if f.Limit, err = readNumber(c, "limit", maxLog, 0, math.MaxInt32); err != nil {
		return err
	}
	f.Limit = min(f.Limit, maxLog)
	entries, err := e.entries(c, f)
	if err != nil {
		return err
	}
	lines := []fiber.Map{}
	for _, l := range entries {
		lines = append(lines, fiber.Map{"timestamp": l.Timestamp, "line": l.Message})
	}
	return c.JSON(fiber.Map{"logs": lines, "logEntries": entries})
}

func readLogQuery(c *fiber.Ctx) (f models.EndFilter, err error) {
	cursor, err := readMoment(c, "cursor")
	if err != nil {
		return f, err
	}
	if f.Limit, err = readNumber(c, "limit", maxLog, 0, maxLog); err != nil {
		return f, err
	}
	direction, level := c.Query("direction", "forward"), c.Query("level", "debug")
	switch f.Text = c.Query("search"); {
	case direction != "forward" && direction != "backward":
		return f, invalid("direction must be forward or backward")
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, level):
		return f, invalid("level must be debug, info, warn or error")
	case len(f.Text) > maxSearch:
		return f, invalid(fmt.Sprintf("search must not be longer than %d bytes", maxSearch))
	}
	f.Failed = level == "warn" || level == "error"
	if f.Newest = direction == "backward"; f.Newest {
		if !cursor.IsZero() {
			f.Until = cursor.Add(time.Millisecond - time.Microsecond) // clients round down
		}
	} else {
		f.From = cursor
	}
	return f, nil
}

// readMoment reads a parameter in milliseconds since 1970; zero = it is not there.
func readMoment(c *fiber.Ctx, name string) (t time.Time, err error) {
	ms, err := readNumber(c, name, -1, 0, 1<<53)
	if err != nil || ms < 0 {
		return t, err
	}
	return time.UnixMilli(int64(ms)), nil
}

func (e *Server) entries(c *fiber.Ctx, f models.EndFilter) ([]logDoc, error) {
	box, err := e.live(c)
	if err != nil {
		return nil, err
	}
	found, err := e.Store.JobEnds(c.UserContext(), box.TenantID, box.ID, f)
	if err != nil {
		return nil, err
	}
	entries := []logDoc{}
	for _, j := range found {
		l := logDoc{*j.FinishedAt, "info", fmt.Sprintf("%s %s", j.Kind, j.State), map[string]string{"job": j.ID}}
		if j.State != models.Succeeded {
			l.Level = "error"
		}
		entries = append(entries, l)
	}
	return entries, nil
}
