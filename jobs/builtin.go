package jobs

import (
	"sandyard/models"
)

// builtin is what the templates that Sandyard has recipes for are beside their images (images/README.md). A name that
// it does not know is a plain image.
func builtin(name string) models.Definition {
	few := &models.PoolSize{Min: 1, Max: 8}
	switch name {
	case "python":
		return models.Definition{Description: "Python with pip and venv, git, small tools such as jq, make and unzip"}
	case "base":
		return models.Definition{Description: "A shell and common small programs", Pool: few}
	case "node":
		return models.Definition{Description: "Node.js, git", Pool: few}
	case "data-science", "python-data-science":
		return models.Definition{
			Description: "Python with NumPy, pandas, SciPy and Matplotlib", Pool: few,
			Env:       map[string]string{"MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/matplotlib"},
			Resources: models.Bounds{MemoryMB: 2048, DiskMB: 512},
		}
	case "code-server":
		return codeServer()
	case "browser":
		return browser()
	case "claude-code":
		return agent("Claude Code, with Sandyard's tools where SANDYARD_URL and SANDYARD_API_KEY are set", map[string]string{
			"DISABLE_AUTOUPDATER": "1",
		})
	case "codex":
		return agent("Codex, with Sandyard's tools where SANDYARD_URL and SANDYARD_API_KEY are set", nil)
	case "cloud":
		return models.Definition{
			Description: "kubectl, the command lines of AWS and Azure, Google Cloud's libraries for Python",
			Resources:   models.Bounds{MemoryMB: 1024, DiskMB: 512},
			Pool:        &models.PoolSize{Min: 0, Max: 4},
		}
	case "all-in-one":
		return allInOne()
	}
	return models.Definition{}
}

// editorCommand starts the editor. What it keeps for itself stays out of the home directory, which is the workspace.
// The edge decides who comes in.
const editorCommand = "export XDG_CONFIG_HOME=/tmp/code-server XDG_DATA_HOME=/tmp/code-server " +
	"XDG_CACHE_HOME=/tmp/code-server; " +
	"exec code-server --bind-addr 127.0.0.1:9000 --auth none --disable-telemetry --disable-update-check " +
	"--disable-workspace-trust --user-data-dir /tmp/code-server ."

func codeServer() models.Definition {
	return models.Definition{
		Description:  "VS Code in the browser, on port 9000",
		StartCommand: editorCommand,
		Ready:        &models.Probe{HTTP: &models.HTTPProbe{Port: 9000, Path: "/healthz"}, TimeoutSeconds: 120},
		Ports:        []int{9000}, VSCodePort: 9000,
		Resources: models.Bounds{CPUs: 2, MemoryMB: 2048, DiskMB: 512, Pids: 512},
		Pool:      &models.PoolSize{Min: 0, Max: 4},
	}
}

func browser() models.Definition {
	return models.Definition{
		Description: "Chromium on a virtual screen, for the browser tools and Playwright; noVNC shows the screen on port " +
			"6080, with a password",
		StartCommand: "exec sandyard-desktop",
		Ready:        &models.Probe{HTTP: &models.HTTPProbe{Port: 6080, Path: "/vnc.html"}, TimeoutSeconds: 120},
		Ports:        []int{5900, 6080},
		Env:          map[string]string{"DISPLAY": ":99", "PLAYWRIGHT_BROWSERS_PATH": "/opt/playwright"},
		Resources:    models.Bounds{CPUs: 2, MemoryMB: 2048, DiskMB: 512, Pids: 512},
		Pool:         &models.PoolSize{Min: 0, Max: 4},
	}
}

func agent(description string, env map[string]string) models.Definition {
	return models.Definition{
		Description: description, Env: env,
		Resources: models.Bounds{MemoryMB: 2048, DiskMB: 512, Pids: 512},
		Pool:      &models.PoolSize{Min: 0, Max: 4},
	}
}

func allInOne() models.Definition {
	screen := browser()
	return models.Definition{
		Description: "Python, Node.js 24, git, VS Code in the browser on port 9000, agents' tools over MCP on port 6060, " +
			"and what the template browser has",
		// The command ends when one of the three does.
		StartCommand: "exec bash -c 'sandyard-desktop & (" + editorCommand + ") & sandbox-tools & wait -n'",
		Ready: &models.Probe{
			Command: "curl -sf localhost:9000/healthz && curl -sf localhost:6080/vnc.html && curl -sf " +
				"localhost:6060/health",
			TimeoutSeconds: 120,
		},
		Ports: append(screen.Ports, 6060, 9000), MCPPort: 6060, VSCodePort: 9000, Env: screen.Env,
		Resources: models.Bounds{CPUs: 2, MemoryMB: 4096, DiskMB: 1024, Pids: 1024},
		Pool:      &models.PoolSize{Min: 0, Max: 2},
	}
}
