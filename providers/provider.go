// Package providers is the contract between Sandyard and whatever runs sandboxes: Docker on this machine,
// or a cloud service. It holds the interfaces, the values that cross them and the errors a backend may answer with.
package providers

import (
	"cmp"
	"context"
	"io"
	"net"
	"time"
)

// Provider makes, finds and removes sandboxes on one backend. All methods may be called concurrently.
//
// The caller has written a row for a sandbox before it calls Create, and every resource a provider makes carries
// the sandbox's id and the fleet's name, so that List finds what a lost answer would otherwise leak.
type Provider interface {
	// Capabilities says what this backend can do. It never touches the network.
	Capabilities() Capabilities
	// Create makes the sandbox spec.ID and returns once it takes commands. Called again with the same id it adopts
	// what the first call left, in whatever state, so a retried create never makes two.
	Create(ctx context.Context, spec Spec) (Instance, error)
	// Open connects to a running sandbox. It answers ErrNotFound when the resource is gone and ErrPaused when it is paused.
	// Several calls for one id share a connection.
	Open(ctx context.Context, id string) (Sandbox, error)
	// Delete removes the sandbox in any state with all that belongs to it. An absent sandbox is a success.
	Delete(ctx context.Context, id string) error
	// List returns every resource of this fleet on the backend, including half-made ones.
	List(ctx context.Context) ([]Instance, error)
	// Close lets go of every connection; sandboxes and their commands go on running.
	Close() error
}

// Pauser makes a sandbox use no CPU. Its files stay, and where Capabilities.PauseMemory is supported its processes with their
// memory; elsewhere they end, and a command that ran is found killed after the resume. Both calls are idempotent.
type Pauser interface {
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
}

// Pinger is implemented by providers that can be asked at little cost whether they are there and take our key. Of the others
// the list of sandboxes is asked for.
type Pinger interface {
	// Ping answers Unavailable when nobody answers, and Refused when the key is not taken.
	Ping(ctx context.Context) error
}

// Timer is implemented by providers whose backend ends sandboxes by a clock of its own. It is told of every new timeout, so
// that a sandbox does not end there before it ends here.
type Timer interface {
	// SetTimeout makes the backend keep the sandbox for left from now on, also where that is sooner than before. An absent
	// sandbox answers ErrNotFound.
	SetTimeout(ctx context.Context, id string, left time.Duration) error
}

// Referrer is implemented by providers whose backend names sandboxes by ids of its own. It is told what the sandbox's row
// says before calls for that sandbox, so that none of them needs to search.
type Referrer interface {
	// Remember takes ref as the backend's id of the sandbox. It never touches the network.
	Remember(id, ref string)
}

// Defaulter is implemented by providers that give sandboxes resources of their own where a Spec leaves them at zero.
type Defaulter interface{ Defaults() Resources }

// Host is what the machine has that sandboxes live on; 0 = not known.
type Host struct {
	CPUs     int
	MemoryMB int64
	Pids     int64 // processes and threads
}

// HostReporter is implemented by providers that know the machine of their sandboxes.
type HostReporter interface {
	// Host returns what the machine has in all. Error: Unavailable.
	Host(ctx context.Context) (Host, error)
}

// DiskReporter is implemented by providers that know the disk of their sandboxes and images.
type DiskReporter interface {
	// DiskFree returns how much of it is free for the platform, in bytes. Error: NotSupported where that cannot be known.
	DiskFree(ctx context.Context) (int64, error)
}

// Pooler is implemented by providers that keep started sandboxes waiting, so that a create need not wait for a start.
type Pooler interface {
	// Stock says what is to wait from now on, as far as room reaches; whatever else waits is removed.
	Stock(ctx context.Context, classes []PoolClass, room PoolRoom)
}

// Sweeper is implemented by providers whose backend keeps more than sandboxes and images, of which workers that died or
// older releases may leave something.
type Sweeper interface {
	// Sweep removes what nobody needs any more and nobody else will remove, and says how much of each sort that was, with
	// what the provider has removed by itself since the last call. Calls follow one another.
	Sweep(ctx context.Context) (map[string]int, error)
}

// PoolClass is a kind of sandbox that waits. The environment and what else can be changed later is given to it when it is
// taken.
type PoolClass struct {
	Spec Spec // without an id
	Min  int  // wait always
	Max  int  // wait when as many were made within the last minute
}

// PoolRoom is what all that waits may be and take together. Where it does not reach for all classes, they have even shares of
// it. A negative number is no limit.
type PoolRoom struct {
	Members  int
	CPUs     float64
	MemoryMB int64
}

// AnyRoom is no limit at all.
func AnyRoom() PoolRoom { return PoolRoom{Members: -1, CPUs: -1, MemoryMB: -1} }

// Take is what is left of the room beside one more member. It answers false where it does not reach.
func (r PoolRoom) Take(member Resources) (PoolRoom, bool) {
	if r.Members == 0 || r.CPUs >= 0 && member.CPUs > r.CPUs || r.MemoryMB >= 0 && member.MemoryMB > r.MemoryMB {
		return r, false
	}
	if r.Members > 0 {
		r.Members--
	}
	if r.CPUs >= 0 {
		r.CPUs -= member.CPUs
	}
	if r.MemoryMB >= 0 {
		r.MemoryMB -= member.MemoryMB
	}
	return r, true
}

// Networker is a Sandbox whose programs can be offered a way to the outside. Where it leads is for the provider's
// Outbound to say. The call is idempotent, and holds for commands that start after it.
type Networker interface {
	SetNetwork(ctx context.Context, on bool) error
}

// Outbound makes the connections that sandboxes ask for. A provider is given it by its worker.
type Outbound interface {
	// Serve serves the streams of one sandbox until next fails, which is when its link ends, and cuts what is left.
	Serve(sandboxID string, next func() (net.Conn, error))
}

// Sandbox is the inside of one running sandbox.
type Sandbox interface {
	Commands
	Files
	Streams
}

// Commands runs programs in a sandbox. A command is named by its caller, and a name is started at most once in a
// sandbox's life.
type Commands interface {
	// Run starts cmd, or attaches to it when its name was started before, and waits for its end. The clock of
	// cmd.Timeout runs here; when it fires the whole process tree is killed and the Result says TimedOut.
	// A cancelled ctx only detaches: the command goes on and a later Run with the same name picks up its result. So does
	// ErrPaused from a sandbox that was running: the command goes on with it, or has ended with it where a pause keeps no
	// memory. Its clock does not stand still meanwhile.
	Run(ctx context.Context, cmd Command) (Result, error)
	// Kill ends the named command with its whole process tree: TERM, a grace, then KILL. Run then returns.
	// An unknown or finished name is a success.
	Kill(ctx context.Context, name string) error
	// Forget drops the kept output of a finished command. The name itself stays taken.
	Forget(ctx context.Context, name string) error
}

// Starter is implemented by sandboxes that can start a command without waiting for its end.
type Starter interface {
	// Start returns when cmd runs, or its name was started before. Its timeout and standard input do not count; a later
	// Run with the same name waits for its end.
	Start(ctx context.Context, cmd Command) error
}

// Files reads and changes files with the rights of the sandbox's user. Relative paths start at the work directory, and a
// leading ~, alone or before a slash, is the home directory, which is the work directory unless HOME says another; a path that leaves the sandbox's roots, through ".." or a symbolic link, answers ErrInvalidPath.
type Files interface {
	// ReadFile returns the bytes of a regular file, or ErrTooLarge when it holds more than max.
	ReadFile(ctx context.Context, path string, max int64) ([]byte, error)
	// WriteFile replaces a file in one step, making parent directories. Mode 0 means 0644.
	WriteFile(ctx context.Context, path string, data []byte, mode uint32) (FileInfo, error)
	Stat(ctx context.Context, path string) (FileInfo, error)
	// ListDir lists a directory, depth levels deep (1 = its direct entries), sorted by path.
	ListDir(ctx context.Context, path string, depth int) ([]FileInfo, error)
	// MakeDir makes a directory with its parents; an existing directory is a success.
	MakeDir(ctx context.Context, path string) (FileInfo, error)
	// Move renames a file or directory, replacing a file that is in the way.
	Move(ctx context.Context, from, to string) (FileInfo, error)
	// Remove deletes a file or a whole directory. A missing path answers ErrFileNotFound.
	Remove(ctx context.Context, path string) error
}

// Streams moves files and directories of any size; nothing of them is held in memory. Paths are those of Files. A call's
// ctx lasts for the whole transfer, and its end breaks it off.
type Streams interface {
	// OpenFile reads a regular file from offset on, length bytes of it, or all there are for a negative length. Length 0
	// only tells what it is. What is missing at the end shows as an error of Read.
	OpenFile(ctx context.Context, path string, offset, length int64) (FileStream, error)
	// SaveFile is WriteFile with what r holds: size bytes, or as many as come for a negative size. When r fails, or
	// anything else, the old file stays.
	SaveFile(ctx context.Context, path string, r io.Reader, size int64, mode uint32) (FileInfo, error)
	// OpenTree reads what is below a directory as a tar archive, compressed if zip says so. Symbolic links are told, not
	// followed; what is neither file, directory nor link is left out.
	OpenTree(ctx context.Context, path string, zip bool) (io.ReadCloser, error)
	// SaveTree unpacks a tar archive, plain or compressed with gzip, into a directory, which is made where there is none.
	// An entry that leads out of the directory, goes through a symbolic link or is a device answers ErrArchive and names
	// the entry; those before it stay. Setuid, setgid and sticky bits are taken away.
	SaveTree(ctx context.Context, path string, r io.Reader) (TreeReport, error)
}

// FileStream is the content of a file and what the file is. Its reader closes it.
type FileStream struct {
	io.ReadCloser

	Size       int64 // of the whole file
	Mode       uint32
	ModifiedAt time.Time
}

// TreeReport is what an archive was unpacked into.
type TreeReport struct {
	Files       int      `json:"files"`
	Directories int      `json:"directories"`
	Links       int      `json:"links" doc:"Symbolic and hard links"`
	Bytes       int64    `json:"bytes" doc:"Total size of the files"`
	Stripped    []string `json:"stripped,omitempty" doc:"The first hundred entries that lost a setuid, setgid or sticky bit"`
}

// Spec is what a sandbox is made from.
type Spec struct {
	ID        string            // ours, ^[a-z0-9]+$; names the resource on the backend
	Image     string            // an image the backend already holds, or a template's name there; empty = the backend's default
	Env       map[string]string // for every command
	WorkDir   string            // absolute; empty = /workspace
	Runtime   string            // the engine's OCI runtime; empty = the provider's default
	Resources Resources
	Labels    map[string]string
	Timeout   time.Duration // a Timer's backend may end it then; 0 = the longest that the backend allows
	Network   bool          // a backend without Networker: its programs may reach the outside
	Ports     []uint16      // a backend that must know them early: those that are going to be reached
}

// Resources limits one sandbox. Zero means the provider's default.
type Resources struct {
	CPUs     float64 // cores
	MemoryMB int64   // memory and swap together
	DiskMB   int64   // writable work directory
	Pids     int64
}

// StandardResources are what a sandbox gets where neither its spec nor the operator says otherwise.
func StandardResources() Resources { return Resources{CPUs: 1, MemoryMB: 512, DiskMB: 256, Pids: 256} }

// Or returns r with d's values where r has none.
func (r Resources) Or(d Resources) Resources {
	return Resources{
		CPUs: cmp.Or(r.CPUs, d.CPUs), MemoryMB: cmp.Or(r.MemoryMB, d.MemoryMB),
		DiskMB: cmp.Or(r.DiskMB, d.DiskMB), Pids: cmp.Or(r.Pids, d.Pids),
	}
}

// State is what a backend says of a sandbox.
type State string

// The states a backend reports.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped" // made but not running: half-made, exited or killed
	// StateUnknown says that the part of the backend that has the sandbox did not answer: it stays as it is known.
	StateUnknown State = "unknown"
)

// Instance is one resource on a backend.
type Instance struct {
	ID        string // our sandbox id
	Ref       string // the backend's own id
	State     State
	CreatedAt time.Time
	Until     time.Time // when the backend ends it by its own clock; zero = it does not
	// Ended says why one that has stopped is no more, as the sandbox's users read it; empty = nobody knows.
	Ended string
}

// Command is a program to run. Exactly one of Shell and Argv is set.
type Command struct {
	Name      string   // unique in the sandbox: the job's id
	Shell     string   // run by bash -c, or sh -c where there is no bash
	Argv      []string // run as it is, looked up in PATH
	Env       map[string]string
	Dir       string // empty = the work directory
	User      string // empty = the sandbox's user
	Stdin     []byte // then end of file
	Timeout   time.Duration
	MaxOutput int64  // bytes kept of stdout and of stderr each
	Merge     bool   // stderr is stdout, as after 2>&1; a terminal has one output in any case
	Started   func() // for Run alone: called once it runs, from when on Run only waits; nil = nobody asks

	// For Background.Launch alone:
	StdinOpen bool          // standard input stays open behind Stdin
	Report    bool          // descriptor 3 is a third output
	Terminal  *TerminalSize // it runs on a terminal, whose output is its stdout; for Terminals alone
	Anew      bool          // one of that name that has ended makes room for it; for Terminals alone
}

// Result is how a command ended. A program that fails is a Result, not an error.
type Result struct {
	ExitCode    int    // 128+n when signal n ended it
	Signal      string // "SIGKILL" and so on; empty when the program exited by itself
	TimedOut    bool
	OOMKilled   bool // the kernel killed something in the sandbox for lack of memory meanwhile
	Stdout      []byte
	Stderr      []byte
	StdoutBytes int64 // written by the program, also beyond what was kept
	StderrBytes int64
	Duration    time.Duration // from start to end inside the sandbox
}

// Truncated says whether the program wrote more than was kept.
func (r Result) Truncated() bool {
	return r.StdoutBytes > int64(len(r.Stdout)) || r.StderrBytes > int64(len(r.Stderr))
}

// FileInfo describes one path.
type FileInfo struct {
	Name          string    `json:"name"`
	Path          string    `json:"path" doc:"Absolute path in the sandbox"`
	Type          string    `json:"type" enum:"file,directory,symlink,other"`
	Size          int64     `json:"size" doc:"Bytes"`
	Mode          string    `json:"mode" doc:"Permissions in octal, such as 0644"`
	Owner         string    `json:"owner,omitempty"`
	Group         string    `json:"group,omitempty"`
	ModifiedAt    time.Time `json:"modified_at"`
	SymlinkTarget string    `json:"symlink_target,omitempty"`
}

// Support says how a backend offers one operation.
type Support string

// The degrees of support.
const (
	Native      Support = "native"
	Emulated    Support = "emulated"
	Unsupported Support = "unsupported"
)

// Capabilities is the published document of what a provider can do.
type Capabilities struct {
	Provider    string  `json:"provider"`
	Exec        Support `json:"exec"`
	Files       Support `json:"files"`
	Code        Support `json:"code" doc:"Code cells and background execs; the template determines the languages"`
	FileTools   Support `json:"file_tools" doc:"Edit, glob, grep and file batches; emulated: one round trip per file and directory"`
	Pause       Support `json:"pause" doc:"Sandboxes are paused and resumed; their files stay"`
	PauseMemory Support `json:"pause_memory" doc:"Pause keeps processes and memory; else it ends all processes"`
	SplitOutput Support `json:"split_output" doc:"stdout and stderr are separate"`
	Stdin       Support `json:"stdin"`
	Network     Support `json:"network" doc:"emulated: outbound connections use a proxy, see egress; native: the backend decides, all or nothing"`
	Background  Support `json:"background" doc:"Execs in the background with their output and input"`
	Processes   Support `json:"processes" doc:"Lists of processes, and signals to one"`
	Terminals   Support `json:"terminals"`
	Watch       Support `json:"watch" doc:"Watches of directories"`
	Ports       Support `json:"ports" doc:"Ports of sandboxes are reached from outside"`
	Images      Support `json:"images" doc:"Sandboxes are made from container images; else from templates that have a name at the provider"`
	Builds      Support `json:"builds" doc:"Templates are built from Dockerfiles"`
	Confined    Support `json:"confined" doc:"The backend itself keeps file operations inside the sandbox's roots, whatever links its programs make"`
	// PerNode says that a sandbox lives on the machine of one worker, so its jobs must run there.
	PerNode bool `json:"per_node"`
	// Warning is what to know before trusting the backend with something. Empty = nothing.
	Warning string `json:"warning,omitempty" doc:"A limit of this backend that you should know before you use it"`
}
