// Command worker runs jobs against the sandbox provider.
package main

import (
	"log/slog"
	"os"

	"sandyard/service"
)

func main() {
	os.Exit(service.Program[service.Worker]{
		Name:   "worker",
		About:  "runs jobs against the sandbox provider",
		Level:  func(c service.Worker) slog.Level { return c.LogLevel },
		Run:    service.RunWorker,
		Health: func(c service.Worker) string { return c.Health },
	}.Main(os.Args[1:]))
}
