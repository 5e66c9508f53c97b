// Package tokens makes and checks the tokens that let a stream into a sandbox: the edge's pass at a gateway, the access
// token of a sandbox's guest, and the traffic token of its ports.
//
// All of them are keyed hashes under one secret of the installation, so none is stored, and any process that knows the
// secret can check what another one has made.
package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Signer makes and checks tokens. Its methods may be called concurrently.
type Signer struct {
	secret []byte
}

// New returns a signer under an installation's secret.
func New(secret string) *Signer { return &Signer{secret: []byte(secret)} }

// NewSecret returns a secret for an installation that has none.
func NewSecret() string { return rand.Text() + rand.Text() }

// sign is an HMAC over what a token is for and the values it stands for. Their lengths are signed, too: no two lists of
// values read the same.
func (s *Signer) sign(use string, values ...string) string {
	h := hmac.New(sha256.New, s.secret)
	for _, v := range append([]string{use}, values...) {
		fmt.Fprintf(h, "%d:%s", len(v), v)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s *Signer) same(token, use string, values ...string) bool {
	return hmac.Equal([]byte(token), []byte(s.sign(use, values...)))
}

// Access returns the access token of a sandbox's guest: whoever has it may run commands and change files.
func (s *Signer) Access(sandboxID string) string { return "ea_" + s.sign("access", sandboxID) }

// IsAccess says whether token is the access token of the sandbox.
func (s *Signer) IsAccess(sandboxID, token string) bool {
	return s.same(strings.TrimPrefix(token, "ea_"), "access", sandboxID)
}

// Traffic returns the token that lets requests to any port of a sandbox that is not public.
func (s *Signer) Traffic(sandboxID string) string { return "ta_" + s.sign("traffic", sandboxID) }

// IsTraffic says whether token is the traffic token of the sandbox.
func (s *Signer) IsTraffic(sandboxID, token string) bool {
	return s.same(strings.TrimPrefix(token, "ta_"), "traffic", sandboxID)
}

// Port returns the token of one grant of a port. It is good for as long as the grant's row is.
func (s *Signer) Port(sandboxID, grant string) string {
	return portPrefix + grant + "_" + s.sign("port", sandboxID, grant)
}

// ReadPort returns the grant whose token this is, if it is one of the sandbox's.
func (s *Signer) ReadPort(sandboxID, token string) (grant string, ok bool) {
	grant, signature, _ := strings.Cut(strings.TrimPrefix(token, portPrefix), "_")
	return grant, s.same(signature, "port", sandboxID, grant)
}

const portPrefix = "pt_"

// Gateway returns a pass for one port of a sandbox at its node's gateway.
func (s *Signer) Gateway(sandboxID string, port uint16, until time.Time) string {
	p, end := strconv.Itoa(int(port)), strconv.FormatInt(until.Unix(), 10)
	return strings.Join([]string{sandboxID, p, end, s.sign("gateway", sandboxID, p, end)}, ".")
}

// ReadGateway returns what a gateway's pass is for, if it is valid now.
func (s *Signer) ReadGateway(pass string, now time.Time) (sandboxID string, port uint16, ok bool) {
	parts := strings.Split(pass, ".")
	if len(parts) != 4 || !s.same(parts[3], "gateway", parts[:3]...) {
		return "", 0, false
	}
	n, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return "", 0, false
	}
	end, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || now.After(time.Unix(end, 0)) {
		return "", 0, false
	}
	return parts[0], uint16(n), true
}
