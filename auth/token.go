package auth

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// TokenLife is how long a token is good for at most.
const TokenLife = 12 * time.Hour

const issuer = "sandyard"

// ErrToken says that a token is none of ours, is changed or has expired.
var ErrToken = errors.New("the token is invalid or has expired")

// NewSecret returns a secret to sign tokens with.
func NewSecret() []byte {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	return secret
}

// Holder is whom a token speaks for.
type Holder struct {
	User  string
	Login string // the token counts as long as the login does
}

// claims are what a token holds.
type claims struct {
	Login string `json:"sid"`
	jwt.RegisteredClaims
}

// Sign returns a token for a time, a JWT (RFC 7519) signed by HS256 with the named secret.
func Sign(key string, secret []byte, h Holder, now time.Time, life time.Duration) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{h.Login, jwt.RegisteredClaims{
		Issuer: issuer, Subject: h.User, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	}})
	t.Header["kid"] = key
	return t.SignedString(secret)
}

// Verify returns whom a token speaks for, or ErrToken. secret returns the secret of a name, or nil.
func Verify(token string, now time.Time, secret func(key string) []byte) (Holder, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		key, _ := t.Header["kid"].(string)
		if s := secret(key); s != nil {
			return s, nil
		}
		return nil, ErrToken
	}, jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer(issuer), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil {
		return Holder{}, ErrToken
	}
	return Holder{c.Subject, c.Login}, nil
}
