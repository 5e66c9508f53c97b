// Sandbox-tools serves the agents' tools inside a sandbox: MCP over streamable HTTP on a port of its loopback.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"sandyard/guest"
	"sandyard/guest/supervisor"
	"sandyard/providers/envd"
	"sandyard/toolset/inside"
)

const (
	processors  = 2
	memoryLimit = 256 << 20 // soft; files of requests and the spools may hold most of it
	// headerTime and requestTime are how long a client may take for its headers, and for all of its request.
	headerTime  = 10 * time.Second
	requestTime = 2 * time.Minute
	attachTime  = time.Minute
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "sup" { // as which the guest calls it
		supervisor.Run()
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-tools:", err)
		os.Exit(1)
	}
}

func serve() error {
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the work directory: %w", err)
	}
	port := flag.Uint("port", 6060, "port on the loopback")
	workDir := flag.String("workdir", here, "where commands start and relative paths begin")
	roots := flag.String("roots", here+",/tmp", "the directories that file tools may touch, with commas between them")
	flag.Parse()
	if *port < 1 || *port > 65535 || flag.NArg() > 0 {
		return fmt.Errorf("-port must be between 1 and 65535, and there are no other arguments")
	}
	runtime.GOMAXPROCS(processors)
	debug.SetMemoryLimit(memoryLimit)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(uint64(*port), 10)))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	box, err := sandbox(*workDir, strings.Split(*roots, ","), log)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           inside.NewHandler(box, version(), log),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       requestTime,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return server.Serve(listener)
}

// sandbox is the one that the program runs in, by a guest of its own.
func sandbox(workDir string, roots []string, log *slog.Logger) (*envd.Sandbox, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program: %w", err)
	}
	g, err := guest.New(
		guest.Options{Supervisor: []string{self, "sup"}, Env: environment(), WorkDir: workDir, Roots: roots, Log: log},
	)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go func() { _ = g.ServeLink(far, far) }() // ends with the process
	ctx, cancel := context.WithTimeout(context.Background(), attachTime)
	defer cancel()
	return envd.Attach(ctx, near, envd.Options{WorkDir: workDir, Log: log})
}

func environment() map[string]string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
