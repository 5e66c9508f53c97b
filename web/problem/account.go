package problem

import (
	"errors"
	"net/http"

	"sandyard/models"
	"sandyard/vault"
)

// ofAccount is the part of Of about keys, users, tenants, secrets and tickets. It is nil for all other errors.
func ofAccount(err error) *Problem {
	var (
		replaced *models.ReplacedError
		used     *models.SecretUsedError
	)
	switch {
	case errors.Is(err, models.ErrKeyName):
		return Invalid("body.name", "must have 1 to 100 printable characters")
	case errors.Is(err, models.ErrUserName):
		return Invalid("body.name", "must have 1 to 100 printable characters without spaces")
	case errors.Is(err, models.ErrTenantName):
		return Invalid("body.name", "must have up to 63 of a-z, 0-9 and -, and begin with a letter or a digit")
	case errors.Is(err, models.ErrCeiling):
		return Invalid("body", models.ErrCeiling.Error())
	case errors.Is(err, models.ErrKeyNamed):
		return New(http.StatusConflict, "name_taken", models.ErrKeyNamed.Error())
	case errors.Is(err, models.ErrUserNamed):
		return New(http.StatusConflict, "name_taken", models.ErrUserNamed.Error())
	case errors.Is(err, models.ErrTenantNamed):
		return New(http.StatusConflict, "name_taken", models.ErrTenantNamed.Error())
	case errors.Is(err, models.ErrBeyondRole): // the role has changed a moment ago
		return New(http.StatusForbidden, "scope_missing", models.ErrBeyondRole.Error())
	case errors.Is(err, models.ErrRevoked):
		return New(http.StatusConflict, "key_ended", "the key is revoked or has expired; create another one")
	case errors.As(err, &replaced):
		return New(http.StatusConflict, "key_replaced", replaced.Error())
	case errors.As(err, &used):
		return New(http.StatusConflict, "secret_in_use", used.Error())
	case errors.Is(err, vault.ErrNoKey):
		return New(http.StatusNotImplemented, "secrets_unavailable",
			"this server has no key to encrypt secrets with; ask your operator to set SECRETS_KEY")
	}
	return ofTicket(err)
}

// ofTicket is the part about tickets of terminals.
func ofTicket(err error) *Problem {
	const another = "; create another with POST …/terminal/tickets"
	switch {
	case errors.Is(err, models.ErrTicketUsed):
		return New(http.StatusForbidden, "ticket_used", "the ticket was already used; a ticket works once"+another)
	case errors.Is(err, models.ErrTicketExpired):
		return New(http.StatusForbidden, "ticket_expired", "the ticket has expired"+another)
	case errors.Is(err, models.ErrTicketForeign):
		return New(http.StatusForbidden, "ticket_of_another", "the ticket is for another sandbox or terminal"+another)
	case errors.Is(err, models.ErrTicketOrigin):
		return New(http.StatusForbidden, "origin_forbidden",
			"the ticket is not for pages of this origin; name the page's origin in the request"+another)
	}
	return nil
}
