package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"sandyard/guest/tunnel"
)

// Numbers of SOCKS5 (RFC 1928).
const (
	socksVersion     = 5
	socksNoAuth      = 0
	socksNoMethod    = 0xff
	socksConnect     = 1
	socksIPv4        = 1
	socksName        = 3
	socksIPv6        = 4
	socksOK          = 0
	socksFailure     = 1
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksNoCommand   = 7
	socksNoAddress   = 8
)

// errSocks is a request that cannot be met, with the code that says so.
type errSocks byte

func (e errSocks) Error() string { return "SOCKS error " + strconv.Itoa(int(e)) }

func (s *Server) serveSocks(c *counted) {
	_ = c.SetDeadline(time.Now().Add(patience))
	target, err := readSocks(c)
	var code errSocks
	switch {
	case errors.As(err, &code):
		_ = replySocks(c, byte(code))
		_ = c.Close()
		return
	case err != nil:
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	t, err := s.dial(context.Background(), target)
	if err != nil {
		_ = replySocks(c, socksCode(err))
		_ = c.Close()
		return
	}
	if err := replySocks(c, socksOK); err != nil {
		_ = t.Close()
		_ = c.Close()
		return
	}
	s.join(c, t, nil)
}

// readSocks reads the greeting and the request, and returns the destination.
func readSocks(c io.ReadWriter) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:2]); err != nil {
		return "", err
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return "", err
	}
	if !slices.Contains(methods, socksNoAuth) {
		_, err := c.Write([]byte{socksVersion, socksNoMethod})
		return "", errors.Join(errors.New("no method in common"), err)
	}
	if _, err := c.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return "", err
	}
	host, err := readSocksHost(c, head[3])
	if err != nil {
		return "", err
	}
	var port [2]byte
	if _, err := io.ReadFull(c, port[:]); err != nil {
		return "", err
	}
	if head[1] != socksConnect {
		return "", errSocks(socksNoCommand)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), nil
}

func readSocksHost(c io.Reader, kind byte) (string, error) {
	size := 0
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		var n [1]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return "", err
		}
		size = int(n[0])
	default:
		return "", errSocks(socksNoAddress)
	}
	host := make([]byte, size)
	if _, err := io.ReadFull(c, host); err != nil {
		return "", err
	}
	if kind == socksName {
		return string(host), nil
	}
	ip, _ := netip.AddrFromSlice(host)
	return ip.String(), nil
}

func replySocks(c io.Writer, code byte) error {
	_, err := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

func socksCode(err error) byte {
	if refused, ok := errors.AsType[*tunnel.RefusedError](err); ok {
		switch refused.Answer {
		case tunnel.Denied:
			return socksNotAllowed
		case tunnel.Unreachable:
			return socksUnreachable
		case tunnel.Open, tunnel.Unavailable:
		}
	}
	return socksFailure
}
