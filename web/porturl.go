package web

// portURL is where a port of a sandbox is reached through the edge, with the sandbox's token where its ports are
// private. It is empty where there is no edge or no port.
func (s *Server) portURL(sandbox string, port int, public bool) string {
	if s.edge == nil || s.edge.Domain == "" || port == 0 {
		return ""
	}
	token := ""
	if !public {
		token = s.edge.Signer.Traffic(sandbox)
	}
	return s.edge.address().URL(sandbox, uint16(port), token)
}
