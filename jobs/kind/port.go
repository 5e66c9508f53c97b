package kind

import (
	"time"

	"sandyard/tokens"
)

// NamePort is the kind of job that lets traffic to a port.
const NamePort = "port"

const defaultPortLife = time.Hour

// Port lets traffic from outside to a port of the sandbox. Nothing needs to listen there yet.
type Port struct {
	Port             int     `json:"port" minimum:"1" maximum:"65535"`
	Public           bool    `json:"public,omitempty" doc:"Everyone with the URL has access. Default false: only clients with the token"`
	ExpiresInSeconds float64 `json:"expires_in_seconds,omitempty" doc:"Counted from the job's start; default 3600, at most 86400"`
}

// PortResult is how the port is reached. URL and token are made when it is answered with, and never stored.
type PortResult struct {
	ID        string    `json:"id" doc:"The grant's id: revoke it with DELETE …/ports/{port}/{id}"`
	Port      uint16    `json:"port"`
	URL       string    `json:"url,omitempty" doc:"Contains the token, unless the port is public; a browser exchanges the token for a cookie"`
	Token     string    `json:"token,omitempty" doc:"For the header X-Sandyard-Token, the cookie or the query parameter sandyard_token; absent if the port is public"`
	Public    bool      `json:"public"`
	Listening bool      `json:"listening" doc:"Whether a program listened on the port when the job ran"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Kind implements Args.
func (*Port) Kind() string { return NamePort }

// Validate implements Args.
func (p *Port) Validate() error {
	if p.Port < 1 || p.Port > 65535 || IsOwnPort(p.Port) {
		return Invalid(
			"port",
			"must be between 1 and 65535, except %d and %d, which the sandbox itself uses",
			tokens.GuestPort,
			tokens.ProxyPort,
		)
	}
	_, err := p.Life()
	return err
}

// IsOwnPort says whether nobody can be let in to a port: the guest has tokens of its own, and to the proxy nothing
// leads.
func IsOwnPort(port int) bool { return port == tokens.GuestPort || port == tokens.ProxyPort }

// Life is how long the grant holds.
func (p *Port) Life() (time.Duration, error) {
	return Seconds("expires_in_seconds", p.ExpiresInSeconds, defaultPortLife, time.Second)
}
