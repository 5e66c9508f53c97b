package mcp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/toolset"
	"sandyard/web/problem"
)

// coreSet is the set that a client gets which asks for none: more tools take more of a model's attention.
const coreSet = "core"

// core names the tools of that set.
func core() []string {
	return []string{
		"file_read", "file_write", "file_edit", "file_list", "file_search", "shell_exec", "shell_wait", "python_exec",
		"pip_install", "git_clone",
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
	more := map[string][]tool{
		"shell": {
			define(s, "exec_start", "Start a command in the background", toolset.Changes, s.execStart),
			define(
				s,
				"exec_output",
				"Return the output of a command after the cursor; the same as shell_wait",
				toolset.Reads,
				s.execOutput,
			),
			define(
				s,
				"exec_stdin",
				"Write to the input of a command that was started with stdin_open",
				toolset.Changes,
				s.execStdin,
			),
			define(s, "exec_signal", "Send a signal to a command", toolset.Changes, s.execSignal),
		},
		"network": {
			define(
				s,
				"port_url",
				"Return a URL at which a port of the sandbox is reached from outside",
				toolset.Adds,
				s.portURL,
			),
		},
	}
	var all []toolSet
	for _, set := range toolset.Sets() {
		one := toolSet{name: set.Name}
		for _, t := range set.Tools {
			one.tools = append(one.tools, s.inside(t))
		}
		one.tools = append(one.tools, more[set.Name]...)
		all = append(all, one)
	}
	return append(all, []toolSet{
		{"browser", (&browserTools{s}).all()},
		{"mcp", (&hubTools{s}).all()},
		{"sandboxes", (&sandboxTools{s}).all()},
		{"jobs", (&jobTools{s}).all()},
	}...)
}

func (s *browserTools) all() []tool {
	return []tool{
		define(
			s.Server,
			"browser_open",
			"Open a page in the browser of a sandbox of template browser, and return its text",
			toolset.Adds,
			s.browserOpen,
		),
		define(
			s.Server,
			"browser_info",
			"Describe the browser: its tabs, its size, and how a person can see its screen",
			toolset.Reads,
			s.browserInfo,
		),
		define(s.Server, "browser_screenshot", "Show the open page, or an element of it", toolset.Reads, s.browserScreenshot),
		define(
			s.Server,
			"browser_action",
			"Click, type, scroll and navigate in the open page, or read its text",
			toolset.Changes,
			s.browserAction,
		),
	}
}

func (s *hubTools) all() []tool {
	return []tool{
		define(
			s.Server,
			"mcp_list_servers",
			"List the MCP servers that the file .mcp.json in the sandbox's work directory names",
			toolset.Reads,
			s.mcpListServers,
		),
		define(s.Server, "mcp_list_tools", "List the tools of one of these servers", toolset.Adds, s.mcpListTools),
		define(
			s.Server,
			"mcp_execute",
			"Call a tool of one of these servers, from inside the sandbox, under its egress policy",
			toolset.Changes,
			s.mcpExecute,
		),
	}
}

func (s *sandboxTools) all() []tool {
	return []tool{
		define(
			s.Server,
			"sandbox_get",
			"Describe the sandbox: its state, template and timeouts",
			toolset.Reads,
			s.sandboxGet,
		),
		define(
			s.Server,
			"sandbox_create",
			"Create another sandbox; give its id as sandbox to other tools",
			toolset.Adds,
			s.sandboxCreate,
		),
		define(s.Server, "sandbox_list", "List the live sandboxes", toolset.Reads, s.sandboxList),
		define(
			s.Server,
			"sandbox_pause",
			"Freeze a sandbox with its memory; the next tool resumes it",
			toolset.Adds,
			s.sandboxPause,
		),
		define(s.Server, "sandbox_resume", "Resume a paused sandbox", toolset.Adds, s.sandboxResume),
		define(
			s.Server,
			"sandbox_extend",
			"Extend the timeout of a sandbox to a number of seconds from now",
			toolset.Adds,
			s.sandboxExtend,
		),
		define(s.Server, "sandbox_delete", "Delete a sandbox with all that is in it", toolset.Changes, s.sandboxDelete),
		define(
			s.Server,
			"workspace_info",
			"Describe the work directory: path, free space, tools",
			toolset.Reads,
			s.workspaceInfo,
		),
		define(s.Server, "workspace_health", "Check that the sandbox runs commands", toolset.Reads, s.workspaceHealth),
		define(s.Server, "template_list", "List the templates that sandboxes are made from", toolset.Reads, s.templateList),
		define(
			s.Server,
			"usage_limits",
			"Show the limits of the tenant and the user, with what is in use",
			toolset.Reads,
			s.usageLimits,
		),
	}
}

func (s *jobTools) all() []tool {
	return []tool{
		define(s.Server, "job_get", "Show the state of a job", toolset.Reads, s.jobGet),
		define(s.Server, "job_wait", "Wait for the end of a job and return its state", toolset.Reads, s.jobWait),
		define(s.Server, "job_list", "List jobs, newest first", toolset.Reads, s.jobList),
		define(s.Server, "job_cancel", "Cancel a job; a command is killed", toolset.Changes, s.jobCancel),
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
			return nil, problem.New(
				fiber.StatusUnprocessableEntity,
				"invalid_request",
				fmt.Sprintf(
					"query.tools %q is neither a set of tools nor a tool; the sets are all, core, %s",
					word,
					strings.Join(s.setNames, ", "),
				),
			)
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
