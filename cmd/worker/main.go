// Command worker runs jobs against the sandbox provider.
package main

import (
	"log/slog"
	"os"

	"sandyard/app"
)

func main() {
	os.Exit(app.Program[app.Worker]{
		Name:   "worker",
		About:  "runs jobs against the sandbox provider",
		Level:  func(c app.Worker) slog.Level { return c.LogLevel },
		Run:    app.RunWorker,
		Health: func(c app.Worker) string { return c.Health },
	}.Main(os.Args[1:]))
}
