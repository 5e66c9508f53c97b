// Guest is the first process of every sandbox. "guest stdio" serves its worker over standard input and output.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"sandyard/guest"
	build "sandyard/guest/step"
	"sandyard/guest/supervisor"
)

const (
	processors  = 2
	memoryLimit = 128 << 20 // soft; the spools may hold half of it
	cannotRun   = 126       // a shell's exit code for what cannot be started
	gcPercent   = 50        // a few milliseconds of work for a third less memory
)

var errDisabled = errors.New("a program of the sandbox has lowered the guest's limits")

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	switch os.Args[1] {
	case "sup":
		supervisor.Run()
	case "stdio":
		if err := stdio(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
	case "step":
		step(os.Args[2:])
	case "version":
		fmt.Println(version())
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(
		os.Stderr,
		"usage: guest stdio [-workdir DIR] [-roots DIR,...] [-users NAME,...] [-unclaimed DURATION] [-linger DURATION] | "+
			"guest sup | guest step DIR PROGRAM [ARG...] | guest step --end | guest version",
	)
	os.Exit(2)
}

// step runs a step of a build, or ends what one has left.
func step(args []string) {
	err := errors.New("guest step takes a directory and a program")
	switch {
	case len(args) == 1 && args[0] == "--end":
		err = build.End()
	case len(args) > 1:
		err = build.Run(args[0], args[1:], os.Environ())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(cannotRun)
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// stdio serves until standard input ends and nobody could reach the sandbox any more, or nobody has claimed it.
func stdio(args []string) error {
	o, err := options(args)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(processors)
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(gcPercent)
	g, err := guest.New(o)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- g.ServeLink(os.Stdin, os.Stdout) }() // ends with the process
	select {
	case err = <-served:
	case <-g.Abandoned():
	case <-g.Disabled(): // the kernel ends the rest with its first process, for which that would take descriptors
		return errDisabled
	}
	g.Close()
	return err
}

func options(args []string) (guest.Options, error) {
	here, err := os.Getwd()
	if err != nil {
		return guest.Options{}, fmt.Errorf("find the work directory: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return guest.Options{}, fmt.Errorf("find the program: %w", err)
	}
	flags := flag.NewFlagSet("guest stdio", flag.ExitOnError)
	workDir := flags.String("workdir", here, "work directory of commands and base of relative paths")
	roots := flags.String("roots", "/workspace,/tmp", "the directories that file calls may touch")
	users := flags.String("users", "", "accepted aliases of the user that all commands run as")
	unclaimed := flags.Duration("unclaimed", 0, "wait for a claim, and exit after this time without a request")
	linger := flags.Duration("linger", 0, "how long a half-closed stream waits for the other side to close; 0 = 30s")
	if err := flags.Parse(args); err != nil {
		return guest.Options{}, err
	}
	return guest.Options{
		Supervisor: supervisorCommand(self), Env: environment(), WorkDir: *workDir,
		Roots: list(*roots), Users: list(*users), Unclaimed: *unclaimed, Linger: *linger,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, nil
}

// supervisorCommand prefers the small program.
func supervisorCommand(self string) []string {
	small := filepath.Join(filepath.Dir(self), "sup")
	if info, err := os.Stat(small); err == nil && info.Mode().IsRegular() {
		return []string{small}
	}
	return []string{self, "sup"}
}

func environment() map[string]string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
