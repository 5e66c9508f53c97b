// Command api accepts jobs over HTTP and tells how they stand.
package main

import (
	"log/slog"
	"os"

	"sandyard/app"
)

func main() {
	os.Exit(app.Program[app.API]{
		Name:   "api",
		About:  "serves the HTTP API: accepts jobs and reports their state",
		Level:  func(c app.API) slog.Level { return c.LogLevel },
		Run:    app.RunAPI,
		Health: func(c app.API) string { return c.Addr },
	}.Main(os.Args[1:]))
}
