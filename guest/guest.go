// Package guest is what runs inside every sandbox of ours: it starts commands, moves files and relays ports for the
// worker that holds the sandbox. It speaks E2B's envd protocol, with named commands added (package dialect).
package guest

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"sandyard/guest/dialect"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/guest/execs"
	"sandyard/guest/files"
	"sandyard/guest/procs"

	"connectrpc.com/connect"
)

// maxMessage bounds one request of the worker, in bytes.
const maxMessage = 16 << 20

// Options describes the sandbox to its guest.
type Options struct {
	Supervisor []string          // command line of a program that calls sup.Run
	Env        map[string]string // of every command
	WorkDir    string            // where commands start and relative paths begin
	Roots      []string          // the directories that file calls may touch
	Users      []string          // other names for the user that everything runs as
	// Unclaimed is how long the guest lives without a request until its sandbox is claimed. 0 = it has its owner.
	Unclaimed time.Duration
	Log       *slog.Logger
}

// Guest serves one sandbox.
type Guest struct {
	host  *procs.Host
	execs *execs.Registry
	files *files.Tree
	claim *claim
	log   *slog.Logger
	http  http.Handler
}

// New takes over the process: see procs.NewHost.
func New(o Options) (*Guest, error) {
	host, err := procs.NewHost(o.Supervisor, o.Log)
	if err != nil {
		return nil, fmt.Errorf("take over the process: %w", err)
	}
	g := &Guest{
		host: host, log: o.Log,
		execs: execs.NewRegistry(host, o.Env, o.WorkDir),
		files: files.NewTree(o.Roots, o.WorkDir),
		claim: newClaim(o.Unclaimed),
	}
	g.http = checkUser(o.Users, g.routes())
	if o.Unclaimed > 0 {
		g.http = g.claim.watch(g.http)
	}
	return g, nil
}

// Handler is the guest's HTTP side: envd's services and files, and the named commands.
func (g *Guest) Handler() http.Handler { return g.http }

// Abandoned is closed when nobody has claimed the sandbox in time; its process should then end.
func (g *Guest) Abandoned() <-chan struct{} { return g.claim.abandoned }

// Close kills every command.
func (g *Guest) Close() { g.host.Close() }

func (g *Guest) routes() http.Handler {
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // both ends are on one machine
	}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(&processService{execs: g.execs}, options...))
	mux.Handle(filesystemconnect.NewFilesystemHandler(&filesystemService{files: g.files}, options...))
	mux.HandleFunc("GET "+dialect.HealthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+dialect.ClaimPath, g.claimSandbox)
	mux.HandleFunc("GET "+dialect.FilesPath, g.download)
	mux.HandleFunc("POST "+dialect.FilesPath, g.upload)
	mux.HandleFunc("GET "+dialect.ExecsPath, g.listExecs)
	mux.HandleFunc("GET "+dialect.ExecsPath+"/{name}", g.showExec)
	mux.HandleFunc("DELETE "+dialect.ExecsPath+"/{name}", g.forgetExec)
	mux.HandleFunc("POST "+dialect.ExecsPath+"/{name}/kill", g.killExec)
	mux.HandleFunc("POST "+dialect.ExecsPath+"/{name}/stdin", g.writeStdin)
	return mux
}
