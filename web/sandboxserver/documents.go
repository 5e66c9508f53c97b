package sandboxserver

// What requests hold. Unknown fields are ignored.
type (
	createRequest struct {
		UserID     string `json:"user_id" required:"true"`
		TemplateID string `json:"template_id,omitempty"`
	}
	sandboxRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
	}
	runRequest struct {
		SandboxID  string `json:"sandbox_id" required:"true"`
		Command    string `json:"command" required:"true"`
		Background bool   `json:"background,omitempty"`
	}
	portRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
		Port      int    `json:"port" required:"true"`
	}
	writeRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
		Path      string `json:"path" required:"true"`
		Content   string `json:"content" required:"true"` // may be empty
	}
	readRequest struct {
		SandboxID string `json:"sandbox_id" required:"true"`
		Path      string `json:"path" required:"true"`
	}
	timeoutRequest struct {
		SandboxID string  `json:"sandbox_id" required:"true"`
		Timeout   float64 `json:"timeout" required:"true"` // seconds from now
	}
)

// What answers hold.
type (
	created struct {
		SandboxID string `json:"sandbox_id"`
	}
	done struct {
		Success bool `json:"success"`
	}
	output struct {
		Output string `json:"output"`
	}
	exposed struct {
		URL string `json:"url"`
	}
	file struct {
		Content string `json:"content"`
	}
	status struct {
		Success           bool   `json:"success"`
		SandboxID         string `json:"sandbox_id"`
		Status            string `json:"status"`
		ProviderSandboxID string `json:"provider_sandbox_id"`
		Message           string `json:"message"`
	}
	failure struct {
		Detail    any    `json:"detail"` // a text, or a list of fieldError
		Code      string `json:"code"`
		RequestID string `json:"request_id"`
	}
	fieldError struct {
		Loc  []string `json:"loc"`
		Msg  string   `json:"msg"`
		Type string   `json:"type"`
	}
)

//nolint:gochecknoglobals // a constant
var success = done{true}
