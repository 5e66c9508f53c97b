package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"sandyard/jobs/queue"
)

// Program is a process of the system with its configuration C.
type Program[C interface{ Validate() error }] struct {
	Name   string
	About  string // one line
	Level  func(C) slog.Level
	Run    func(context.Context, C, *slog.Logger) error // until the context ends
	Health func(C) string                               // the address asked by healthcheck
}

// Main is a whole main function: it knows --help and healthcheck, and otherwise runs until SIGINT or SIGTERM.
func (p Program[C]) Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 1 || len(args) == 1 && args[0] != "healthcheck" {
		p.help(os.Stdout)
		return exitCode(len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help"))
	}
	c, err := Load[C]()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n(%s --help lists the variables)\n", p.Name, err, p.Name)
		return 2
	}
	if len(args) == 1 {
		return p.healthcheck(c)
	}
	log := NewLogger(os.Stderr, p.Level(c))
	queue.LogRedis(log)
	err = p.Run(ctx, c, log)
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) { // stopped, perhaps while it was starting
		return 0
	}
	log.Error(p.Name+" ends", "error", err)
	return 1
}

func exitCode(ok bool) int {
	if ok {
		return 0
	}
	return 2
}

func (p Program[C]) help(w io.Writer) {
	var c C
	fmt.Fprintf(w, "%s: %s\n\nUsage: %s               run until SIGINT or SIGTERM\n", p.Name, p.About, p.Name)
	fmt.Fprintf(w, "       %s healthcheck   exit 0 if the running process is ready\n\nEnvironment:\n", p.Name)
	PrintVariables(w, c)
}

func (p Program[C]) healthcheck(c C) int {
	if err := askReady(p.Health(c)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: not ready: %v\n", p.Name, err)
		return 1
	}
	return 0
}

// NewLogger returns the processes' log: one JSON object a line.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}
