package agentapi

// What requests hold. Unknown fields are ignored. Some fields have two names, of which the first one given counts.
type (
	createRequest struct {
		UserID            string `json:"user_id" required:"true"`
		SandboxTemplateID string `json:"sandbox_template_id,omitempty"`
		TemplateID        string `json:"template_id,omitempty"`
	}
	runRequest struct {
		SandboxID  string `json:"sandbox_id" required:"true"`
		Command    string `json:"command" required:"true"`
		Background bool   `json:"background,omitempty"`
	}
	writeRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
		FilePath  string `json:"file_path,omitempty"`
		Path      string `json:"path,omitempty"`
		Content   string `json:"content" required:"true"` // may be empty
	}
	readRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
		FilePath  string `json:"file_path,omitempty"`
		Path      string `json:"path,omitempty"`
	}
	portRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
		Port      int    `json:"port" required:"true"`
	}
	timeoutRequest struct {
		SandboxID      string   `json:"sandbox_id" required:"true"`
		TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"` // from now
		Timeout        *float64 `json:"timeout,omitempty"`
	}
)

// envelope surrounds every answer but that of a login.
type envelope[T any] struct {
	Code int    `json:"code"` // the status
	Msg  string `json:"msg"`
	Data T      `json:"data"` // null where it is an error
}

// What data holds.
type (
	created struct {
		Success           bool    `json:"success"`
		SandboxID         string  `json:"sandbox_id"`
		ProviderSandboxID string  `json:"provider_sandbox_id"`
		Status            string  `json:"status"`
		MCPURL            *string `json:"mcp_url"`
		VSCodeURL         *string `json:"vscode_url"`
	}
	status struct {
		Success           bool   `json:"success"`
		SandboxID         string `json:"sandbox_id"`
		Status            string `json:"status"`
		ProviderSandboxID string `json:"provider_sandbox_id"`
		Message           string `json:"message"`
	}
	info struct {
		SandboxID         string  `json:"sandbox_id"`
		ProviderSandboxID string  `json:"provider_sandbox_id"`
		UserID            string  `json:"user_id"`
		TemplateID        *string `json:"template_id"`
		CreatedAt         string  `json:"created_at"`
		Status            string  `json:"status"`
	}
	urls struct {
		Success   bool    `json:"success"`
		SandboxID string  `json:"sandbox_id"`
		MCPURL    *string `json:"mcp_url"`
		VSCodeURL *string `json:"vscode_url"`
	}
	ran struct {
		Success bool   `json:"success"`
		Output  string `json:"output"`
		Message string `json:"message"`
	}
	file struct {
		Success bool   `json:"success"`
		Content string `json:"content"`
	}
	exposed struct {
		Success bool   `json:"success"`
		URL     string `json:"url"`
		Message string `json:"message"`
	}
	done struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
)

// token is the answer to a login.
type token struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
}

// refusal is an error.
type refusal struct {
	Code      int    `json:"code"` // the status
	Msg       string `json:"msg"`  // what is wrong, and what to do
	Data      any    `json:"data"` // null
	Error     string `json:"error"`
	RequestID string `json:"request_id"`
}
