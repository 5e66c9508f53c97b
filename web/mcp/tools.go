package mcp

// tools are all tools.
func (s *Server) tools() []tool {
	return []tool{
		define(s, "file_read", "Read a file of text, whole or some of its lines; of a picture, see it", reads, s.fileRead),
		define(s, "file_write", "Replace a file or append to it", changes, s.fileWrite),
		define(s, "file_edit", "Replace a text in a file", changes, s.fileEdit),
		define(s, "file_list", "List a directory", reads, s.fileList),
		define(s, "file_search", "Find the lines of a file, or of all files in a directory, that match a regular expression", reads, s.fileSearch),
		define(s, "shell_exec", "Run a shell command and return its output. After 20 seconds it answers running=true and the command goes on: "+
			"follow it with shell_wait", changes, s.shellExec),
		define(s, "shell_wait", "Wait for the end of a command, and return its output behind the cursor", reads, s.shellWait),
		define(s, "python_exec", "Run Python in an interpreter that keeps its variables; returns output, the last expression and figures",
			changes, s.code("python")),
		define(s, "pip_install", "Install Python packages with pip, under the sandbox's egress policy", adds, s.pipInstall),
		define(s, "git_clone", "Clone a git repository over HTTP, under the sandbox's egress policy", adds, s.gitClone),
		define(s, "http_request", "Make an HTTP request from inside the sandbox, under its egress policy", changes, s.httpRequest),
		define(s, "port_url", "Return a URL at which a port of the sandbox is reached from outside", adds, s.portURL),
		define(s, "process_list", "List the processes in the sandbox", reads, s.processList),
		define(s, "sandbox_get", "Describe the sandbox: its state, template and timeouts", reads, s.sandboxGet),
		define(s, "job_wait", "Wait for the end of a job and return how it stands", reads, s.jobWait),
	}
}
