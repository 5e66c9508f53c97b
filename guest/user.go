package guest

import (
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"

	"sandyard/guest/protocol"
)

// checkUser refuses requests for another user than the sandbox's own, which envd's clients name by basic authentication
// and in the query of file calls.
func checkUser(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, given := r.BasicAuth()
		if r.URL.Path == protocol.FilesPath && r.URL.Query().Has("username") {
			name, given = r.URL.Query().Get("username"), true
		}
		if given && name != "" && !slices.Contains(names, name) {
			writeError(w, noUser(name, names))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func noUser(name string, names []string) error {
	return protocol.Errorf(
		protocol.ReasonNoUser,
		"invalid username: '%s'; everything here runs as '%s'",
		name,
		names[len(names)-1],
	)
}

// envdUser is what E2B calls the user of its own sandboxes, and their clients therefore name.
const envdUser = "user"

func ownNames() []string {
	names := []string{envdUser, strconv.Itoa(os.Getuid())}
	if u, err := user.LookupId(names[1]); err == nil {
		names = append(names, u.Username)
	}
	return names
}
