package web

import "sandyard/models"

// toolURL is where the port of a sandbox's tool is reached through the edge, with the token of its grant where the
// sandbox's ports are private: it opens this port alone, until the grant is revoked or the sandbox ends. It is empty
// where there is no edge or no such tool.
func (s *Server) toolURL(sandbox, tool string, port int, public bool) string {
	if s.edge == nil || s.edge.Domain == "" || port == 0 {
		return ""
	}
	url, _ := s.opened(sandbox, uint16(port), models.ToolGrant(tool, sandbox), public)
	return url
}
