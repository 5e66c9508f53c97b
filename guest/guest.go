// Package guest is what runs inside every sandbox of ours: it starts commands, moves files and relays ports for the
// worker that holds the sandbox. It speaks E2B's envd protocol, with named commands added (package protocol).
package guest

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"sandyard/guest/dialout"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/guest/execs"
	"sandyard/guest/files"
	"sandyard/guest/idle"
	"sandyard/guest/process"
	"sandyard/guest/protocol"
	"sandyard/guest/usage"

	"connectrpc.com/connect"
)

// maxMessage bounds one request of the worker, in bytes.
const maxMessage = 16 << 20

// Options describes the sandbox to its guest.
type Options struct {
	Supervisor []string          // command line of a program that calls supervisor.Run
	Env        map[string]string // of every command
	WorkDir    string            // where commands start and relative paths begin
	Roots      []string          // the directories that file calls may touch
	Users      []string          // other names for the user that everything runs as
	// Unclaimed is how long the guest lives without a request until its sandbox is claimed. 0 = it has its owner.
	Unclaimed time.Duration
	// Linger is how long a stream that was closed waits for the other side to close it, too. 0 = link.Linger.
	Linger time.Duration
	Log    *slog.Logger
}

// Guest serves one sandbox. The worker that holds it can make every call. Outsiders, to whom a worker passes streams,
// have envd's calls alone, and need the access token once there is one.
type Guest struct {
	host     *process.Host
	execs    *execs.Registry
	files    *files.Tree
	watch    *watchers
	meter    usage.Meter
	idle     *idle.Timer
	claim    *claim
	birth    birth
	disabled disabled
	access   access
	dialout  *dialout.Proxy
	linger   time.Duration // of streams
	users    []string      // names of the one user
	log      *slog.Logger
	worker   http.Handler
	outside  http.Handler
}

// New takes over the process: see process.NewHost.
func New(o Options) (*Guest, error) {
	host, err := process.NewHost(o.Supervisor, o.Log)
	if err != nil {
		return nil, fmt.Errorf("take over the process: %w", err)
	}
	g := &Guest{
		host: host, log: o.Log, users: append(ownNames(), o.Users...),
		execs: execs.NewRegistry(host, o.Env, o.WorkDir),
		files: files.NewTree(o.Roots, o.WorkDir),
		claim: newClaim(o.Unclaimed), idle: idle.NewTimer(), dialout: dialout.New(), linger: o.Linger,
	}
	g.files.SetHome(g.execs.Home)
	g.watch = newWatchers(g.files)
	g.worker = checkUser(g.users, g.workerRoutes())
	g.outside = g.access.guard(checkUser(g.users, lazily(func() http.Handler { return g.envdRoutes(true) })))
	g.disabled.ended = make(chan struct{})
	g.worker, g.outside = g.noticeDisabled(g.idle.Watch(g.worker)), g.noticeDisabled(g.idle.Watch(g.outside))
	if o.Unclaimed > 0 {
		g.worker = g.claim.watch(g.worker)
	}
	return g, nil
}

// Abandoned is closed when nobody has claimed the sandbox in time; its process should then end.
func (g *Guest) Abandoned() <-chan struct{} { return g.claim.abandoned }

// Close kills every command and ends every watcher.
func (g *Guest) Close() {
	g.dialout.Close()
	g.idle.Close()
	g.watch.close()
	g.host.Close()
}

// workerRoutes are envd's calls and our own.
func (g *Guest) workerRoutes() http.Handler {
	mux := g.envdRoutes(false)
	mux.HandleFunc("POST "+protocol.ClaimPath, call(g.claimSandbox))
	mux.HandleFunc("POST "+protocol.InitPath, call(g.initSandbox))
	mux.HandleFunc("GET "+protocol.TreePath, g.packTree)
	mux.HandleFunc("POST "+protocol.TreePath, call(g.unpackTree))
	mux.HandleFunc("PUT "+protocol.NetworkPath, call(g.setNetwork))
	mux.HandleFunc("GET "+protocol.ExecsPath, call(g.listExecs))
	mux.HandleFunc("GET "+protocol.ExecsPath+"/{name}", call(g.showExec))
	mux.HandleFunc("DELETE "+protocol.ExecsPath+"/{name}", call(g.forgetExec))
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}", call(g.launchExec))
	mux.HandleFunc("GET "+protocol.ExecsPath+"/{name}/output", g.readOutput)
	mux.HandleFunc("GET "+protocol.ExecsPath+"/{name}/tail", g.tailExec)
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}/resize", call(g.resizeExec))
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}/feed", call(g.feedExec))
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}/settle", call(g.settleExec))
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}/signal", call(g.signalExec))
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}/kill", call(g.killExec))
	mux.HandleFunc("POST "+protocol.ExecsPath+"/{name}/stdin", call(g.writeStdin))
	mux.HandleFunc("GET "+protocol.ProcessesPath, call(g.listProcesses))
	mux.HandleFunc("POST "+protocol.ProcessesPath+"/{pid}/signal", call(g.signalProcess))
	g.toolRoutes(mux)
	return mux
}

// lazily makes a handler when it is first needed: most sandboxes are never asked from outside.
func lazily(build func() http.Handler) http.Handler {
	handler := sync.OnceValue(build)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) })
}

// envdRoutes are envd's calls; lenient says that they read paths and answer as envd's do, where the worker means one
// path and wants to know more.
func (g *Guest) envdRoutes(lenient bool) *http.ServeMux {
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // both ends are on one machine
	}
	processes, content := &processService{execs: g.execs}, &fileService{files: g.files, users: g.users}
	if lenient {
		content.files, content.plain = g.files.AsEnvd(), true
		processes.paths = content.files
	}
	mux := http.NewServeMux()
	path, handler := processconnect.NewProcessHandler(processes, options...)
	mux.Handle(path, untilGone(handler))
	mux.Handle(
		"/"+filesystemconnect.FilesystemName+"/",
		lazily(func() http.Handler { // the first command is not kept waiting for it
			_, handler := filesystemconnect.NewFilesystemHandler(
				&filesystemService{files: content.files, watchers: g.watch, lenient: lenient},
				options...)
			return handler
		}),
	)
	mux.HandleFunc("GET "+protocol.HealthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+protocol.EnvsPath, call(g.envs))
	mux.HandleFunc("GET "+protocol.FilesPath, content.download)
	mux.HandleFunc("POST "+protocol.FilesPath, call(content.upload))
	mux.HandleFunc("POST "+protocol.ComposePath, call(content.compose))
	mux.HandleFunc("GET "+protocol.MetricsPath, call(g.showMetrics))
	return mux
}
