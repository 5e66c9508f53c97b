package web

import "strings"

// Route is a method and a path that the server answers.
type Route struct {
	Method string
	Path   string // parameters are written :name
	Below  bool   // it answers everything below the path, too
}

// Routes lists all that the server answers, so that a check of every route misses none.
func (s *Server) Routes() []Route {
	ends := map[Route]int{}
	for _, r := range s.app.GetRoutes(true) {
		ends[Route{Method: r.Method, Path: r.Path}]++
	}
	var all []Route
	for _, r := range s.app.GetRoutes() {
		one := Route{Method: r.Method, Path: r.Path}
		if ends[one]--; ends[one] < 0 || strings.HasSuffix(r.Path, "*") {
			one.Path, one.Below = strings.TrimSuffix(r.Path, "*"), true
		}
		all = append(all, one)
	}
	return all
}
