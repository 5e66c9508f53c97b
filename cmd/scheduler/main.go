// Command scheduler ends what is due and recovers what crashes left.
package main

import (
	"log/slog"
	"os"

	"sandyard/app"
)

func main() {
	os.Exit(app.Program[app.Scheduler]{
		Name:   "scheduler",
		About:  "ends expired sandboxes, recovers jobs of crashed workers and runs schedules",
		Level:  func(c app.Scheduler) slog.Level { return c.LogLevel },
		Run:    app.RunScheduler,
		Health: func(c app.Scheduler) string { return c.Health },
	}.Main(os.Args[1:]))
}
