package mcp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/web/problem"
)

// coreSet is the set that a client gets which asks for none: more tools take more of a model's attention.
const coreSet = "core"

// core names the tools of that set.
func core() []string {
	return []string{
		"file_read", "file_write", "file_edit", "file_list", "file_search", "shell_exec", "shell_wait", "python_exec", "pip_install", "git_clone",
		"http_request", "port_url", "process_list", "sandbox_get", "job_wait",
	}
}

// toolSet is a set of tools that a client may ask for by its name.
type toolSet struct {
	name  string
	tools []tool
}

// sets are all sets but the core set, whose tools are in them, too.
func (s *Server) sets() []toolSet {
	return []toolSet{
		{"files", s.fileTools()},
		{"shell", s.shellTools()},
		{"code", s.codeTools()},
		{"network", s.networkTools()},
		{"browser", s.browserTools()},
		{"mcp", s.hubTools()},
		{"sandboxes", s.sandboxTools()},
		{"jobs", s.jobTools()},
	}
}

func (s *Server) fileTools() []tool {
	return []tool{
		define(s, "file_read", "Read a text file, whole or some of its lines, or show a picture", reads, s.fileRead),
		define(s, "file_write", "Replace a file or append to it", changes, s.fileWrite),
		define(s, "file_edit", "Replace a text in a file", changes, s.fileEdit),
		define(s, "file_delete", "Delete a file, or a directory with all that is in it", changes, s.fileDelete),
		define(s, "file_list", "List a directory", reads, s.fileList),
		define(s, "file_find", "Find files by their names", reads, s.fileFind),
		define(s, "file_search", "Find the lines of a file, or of all files in a directory, that match a regular expression", reads, s.fileSearch),
		define(s, "file_upload", "Write a file of bytes, given as base64", changes, s.fileUpload),
		define(s, "file_download", "Return a piece of a file as base64, with the file's size and SHA-256", reads, s.fileDownload),
		define(s, "grep", "Find lines that match a regular expression, in the files of a directory", reads, s.grep),
		define(s, "glob", "Find files whose paths match a pattern", reads, s.glob),
	}
}

func (s *Server) shellTools() []tool {
	return []tool{
		define(s, "shell_exec", "Run a shell command and return its output. After 20 seconds it answers running=true and the command goes on: "+
			"follow it with shell_wait", changes, s.shellExec),
		define(s, "shell_wait", "Wait for the end of a command, and return its output after the cursor", reads, s.shellWait),
		define(s, "shell_interactive", "Start a program whose input stays open, by default a shell. shell_write feeds it, shell_view shows its output, "+
			"shell_kill ends it", changes, s.shellInteractive),
		define(s, "shell_view", "Show the output of a command after the cursor, or its last part", reads, s.shellView),
		define(s, "shell_write", "Write to the input of an interactive program, and return what it answers", changes, s.shellWrite),
		define(s, "shell_kill", "Kill a command with all its processes", changes, s.shellKill),
		define(s, "exec_start", "Start a command in the background", changes, s.execStart),
		define(s, "exec_output", "Return the output of a command after the cursor; the same as shell_wait", reads, s.shellWait),
		define(s, "exec_stdin", "Write to the input of a command that was started with stdin_open", changes, s.execStdin),
		define(s, "exec_signal", "Send a signal to a command", changes, s.execSignal),
		define(s, "process_list", "List the processes in the sandbox", reads, s.processList),
		define(s, "process_signal", "Send a signal to one process, such as SIGTERM", changes, s.processSignal),
		define(s, "env_get", "Show environment variables as later commands see them", reads, s.envGet),
		define(s, "env_set", "Set an environment variable for later commands and new interpreters, or remove it", adds, s.envSet),
	}
}

func (s *Server) codeTools() []tool {
	const python = "Run Python in an interpreter that keeps its variables; returns output, the last expression and figures"
	return []tool{
		define(s, "python_exec", python, changes, s.code("python")),
		define(s, "python_execute", python+"; the same as python_exec", changes, s.code("python")),
		define(s, "javascript_execute", "Run JavaScript in Node.js, which keeps its variables", changes, s.code("javascript")),
		define(s, "pip_install", "Install Python packages with pip, under the sandbox's egress policy", adds, s.pipInstall),
	}
}

func (s *Server) networkTools() []tool {
	return []tool{
		define(s, "git_clone", "Clone a git repository over HTTP, under the sandbox's egress policy", adds, s.gitClone),
		define(s, "git_status", "Show the branch and the changes of a git repository", reads, s.gitStatus),
		define(s, "git_commit", "Commit all changes, or some files, of a git repository", adds, s.gitCommit),
		define(s, "git_push", "Push a branch over HTTP, under the sandbox's egress policy", changes, s.gitPush),
		define(s, "http_request", "Make an HTTP request from inside the sandbox, under its egress policy", changes, s.httpRequest),
		define(s, "port_url", "Return a URL at which a port of the sandbox is reached from outside", adds, s.portURL),
	}
}

func (s *Server) browserTools() []tool {
	return []tool{
		define(s, "browser_open", "Open a page in the browser of a sandbox of template browser, and return its text", adds, s.browserOpen),
		define(s, "browser_info", "Describe the browser: its tabs, its size, and how a person can see its screen", reads, s.browserInfo),
		define(s, "browser_screenshot", "Show the open page, or an element of it", reads, s.browserScreenshot),
		define(s, "browser_action", "Click, type, scroll and navigate in the open page, or read its text", changes, s.browserAction),
	}
}

func (s *Server) hubTools() []tool {
	return []tool{
		define(s, "mcp_list_servers", "List the MCP servers that the file .mcp.json in the sandbox's work directory names", reads, s.mcpListServers),
		define(s, "mcp_list_tools", "List the tools of one of these servers", adds, s.mcpListTools),
		define(s, "mcp_execute", "Call a tool of one of these servers, from inside the sandbox, under its egress policy", changes, s.mcpExecute),
	}
}

func (s *Server) sandboxTools() []tool {
	return []tool{
		define(s, "sandbox_get", "Describe the sandbox: its state, template and timeouts", reads, s.sandboxGet),
		define(s, "sandbox_create", "Create another sandbox; give its id as sandbox to other tools", adds, s.sandboxCreate),
		define(s, "sandbox_list", "List the live sandboxes", reads, s.sandboxList),
		define(s, "sandbox_pause", "Freeze a sandbox with its memory; the next tool resumes it", adds, s.sandboxPause),
		define(s, "sandbox_resume", "Resume a paused sandbox", adds, s.sandboxResume),
		define(s, "sandbox_extend", "Extend the timeout of a sandbox to a number of seconds from now", adds, s.sandboxExtend),
		define(s, "sandbox_delete", "Delete a sandbox with all that is in it", changes, s.sandboxDelete),
		define(s, "workspace_info", "Describe the work directory: path, free space, tools", reads, s.workspaceInfo),
		define(s, "workspace_health", "Check that the sandbox runs commands", reads, s.workspaceHealth),
		define(s, "template_list", "List the templates that sandboxes are made from", reads, s.templateList),
		define(s, "usage_limits", "Show the limits of the tenant and the user, with what is in use", reads, s.usageLimits),
	}
}

func (s *Server) jobTools() []tool {
	return []tool{
		define(s, "job_get", "Show the state of a job", reads, s.jobGet),
		define(s, "job_wait", "Wait for the end of a job and return its state", reads, s.jobWait),
		define(s, "job_list", "List jobs, newest first", reads, s.jobList),
		define(s, "job_cancel", "Cancel a job; a command is killed", changes, s.jobCancel),
	}
}

// chosen returns the names of the tools that ?tools= asks for: names of sets and of tools, with commas between them.
func (s *Server) chosen(query string) ([]string, error) {
	if query == "" {
		return core(), nil
	}
	var names []string
	for _, word := range strings.Split(query, ",") {
		found := s.named[strings.TrimSpace(word)]
		if found == nil {
			return nil, problem.New(fiber.StatusUnprocessableEntity, "invalid_request",
				fmt.Sprintf("query.tools %q is neither a set of tools nor a tool; the sets are all, core, %s", word, strings.Join(s.setNames, ", ")))
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// index writes down which tools each name stands for.
func (s *Server) index(sets []toolSet) (all []tool) {
	s.named = map[string][]string{coreSet: core()}
	for _, set := range sets {
		s.setNames = append(s.setNames, set.name)
		all = append(all, set.tools...)
		for _, t := range set.tools {
			name := t.about.Name
			s.named[name] = []string{name}
			s.named[set.name] = append(s.named[set.name], name)
			s.named["all"] = append(s.named["all"], name)
		}
	}
	return all
}
