package models

// Definition is what a template gives to sandboxes beside its image.
type Definition struct {
	Description  string            `json:"description,omitempty" maxLength:"1000"`
	StartCommand string            `json:"start_command,omitempty" maxLength:"65536" doc:"A command line for bash -c that every new sandbox runs in the background, with the sandbox's environment"`
	Ready        *Probe            `json:"ready,omitempty" doc:"Readiness probe of a new sandbox; without it, the sandbox is ready as soon as the start command runs"`
	Ports        []int             `json:"ports,omitempty" maxItems:"64" doc:"Ports that its programs listen on, for information only"`
	MCPPort      int               `json:"mcp_port,omitempty" minimum:"0" maximum:"65535" doc:"Port of an MCP server; sandboxes then have an mcp_url"`
	VSCodePort   int               `json:"vscode_port,omitempty" minimum:"0" maximum:"65535" doc:"Port of an editor such as code-server; sandboxes then have a vscode_url"`
	Env          map[string]string `json:"env,omitempty" doc:"Environment variables for every command; a sandbox's own variables take precedence"`
	WorkDir      string            `json:"work_dir,omitempty" maxLength:"512" doc:"Absolute path of the work directory; default /workspace. It starts empty and hides the image's files at this path"`
	Providers    []string          `json:"providers,omitempty" maxItems:"8" doc:"Providers of its sandboxes whose request names none, in the order in which they are asked; default: the tenant's, else the server's"`
	Names        map[string]string `json:"names,omitempty" doc:"What the template is called at providers that make no sandboxes from images: provider and name. A tenant's own template may use those that the operator lists in PROVIDER_TEMPLATES"`
	Runtime      string            `json:"runtime,omitempty" maxLength:"64" doc:"OCI runtime of the engine, such as runsc; default: the worker's"`
	Resources    Bounds            `json:"resources,omitempty" doc:"Default resources of its sandboxes"`
	Maximum      Bounds            `json:"maximum,omitempty" doc:"Largest resources that a sandbox may request"`
	Egress       *EgressRules      `json:"egress,omitempty" doc:"Default egress policy of its sandboxes; without it, no connections are allowed"`
	Pool         *PoolSize         `json:"pool,omitempty" doc:"Started containers kept ready, across all workers of an engine, if their nodes have room. Requires a key with the scope operator. Default for shared templates: POOL_SIZE and POOL_MAX of the workers; for a tenant's own: none"`
}

// EgressRules are where sandboxes may connect to, in the words of package egress.
type EgressRules struct {
	Allow []string `json:"allow,omitempty" doc:"The same as in the egress of a new sandbox"`
	Deny  []string `json:"deny,omitempty"`
}

// Bounds limit what a sandbox uses; 0 leaves a limit open.
type Bounds struct {
	CPUs     float64 `json:"cpus,omitempty" minimum:"0" maximum:"64" doc:"Cores"`
	MemoryMB int64   `json:"memory_mb,omitempty" minimum:"0" maximum:"262144" doc:"Memory and swap"`
	DiskMB   int64   `json:"disk_mb,omitempty" minimum:"0" maximum:"262144" doc:"Size of the work directory, which counts towards memory"`
	Pids     int64   `json:"pids,omitempty" minimum:"0" maximum:"32768" doc:"Processes and threads"`
}

// Probe says when the programs of a new sandbox are ready. Exactly one of HTTP, TCP and Command is set.
type Probe struct {
	HTTP           *HTTPProbe `json:"http,omitempty" doc:"A GET request that must return a status from 200 to 399"`
	TCP            *TCPProbe  `json:"tcp,omitempty" doc:"A port that must accept a connection"`
	Command        string     `json:"command,omitempty" maxLength:"65536" doc:"A command line for bash -c that must exit 0"`
	TimeoutSeconds float64    `json:"timeout_seconds,omitempty" minimum:"0" maximum:"600" doc:"The create fails if it is not ready by then; default 60"`
}

// HTTPProbe is a GET on a port of the sandbox.
type HTTPProbe struct {
	Port int    `json:"port" minimum:"1" maximum:"65535"`
	Path string `json:"path,omitempty" maxLength:"2048" doc:"Default /"`
}

// TCPProbe is a connection to a port of the sandbox.
type TCPProbe struct {
	Port int `json:"port" minimum:"1" maximum:"65535"`
}

// PoolSize is how many started containers of a template wait.
type PoolSize struct {
	Min int `json:"min,omitempty" minimum:"0" maximum:"1000" doc:"Smallest size of the pool"`
	Max int `json:"max,omitempty" minimum:"0" maximum:"1000" doc:"Largest size of the pool, which follows the number of sandboxes created in the last minute; at least min"`
}
