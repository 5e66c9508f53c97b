// Command api accepts jobs over HTTP and tells how they stand.
package main

import (
	"log/slog"
	"os"

	"sandyard/service"
)

func main() {
	os.Exit(service.Program[service.API]{
		Name:   "api",
		About:  "serves the HTTP API: accepts jobs and reports their state",
		Level:  func(c service.API) slog.Level { return c.LogLevel },
		Run:    service.RunAPI,
		Health: func(c service.API) string { return c.Addr },
	}.Main(os.Args[1:]))
}
