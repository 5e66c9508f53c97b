// Command scheduler ends what is due and recovers what crashes left.
package main

import (
	"log/slog"
	"os"

	"sandyard/service"
)

func main() {
	os.Exit(service.Program[service.Scheduler]{
		Name:   "scheduler",
		About:  "ends expired sandboxes, recovers jobs of crashed workers and runs schedules",
		Level:  func(c service.Scheduler) slog.Level { return c.LogLevel },
		Run:    service.RunScheduler,
		Health: func(c service.Scheduler) string { return c.Health },
	}.Main(os.Args[1:]))
}
