package app

import (
	"log/slog"
	"time"

	"sandyard/providers/modal"
)

// Modal configures the provider modal.
type Modal struct {
	ModalID          string        `env:"MODAL_TOKEN_ID" doc:"id of the token of the Modal account in which the provider modal makes sandboxes"`
	ModalSecret      string        `env:"MODAL_TOKEN_SECRET" doc:"secret of that token"`
	ModalEnvironment string        `env:"MODAL_ENVIRONMENT" doc:"environment at Modal; default the account's"`
	ModalApp         string        `env:"MODAL_APP" envDefault:"sandyard" doc:"app at Modal that the sandboxes belong to; it is made where there is none"`
	ModalImage       string        `env:"MODAL_IMAGE" envDefault:"python:3.12-slim" doc:"image at the provider modal (a registry's name or im-ID) of sandboxes whose template has no name there"`
	ModalLife        time.Duration `env:"MODAL_LIFE" envDefault:"24h" doc:"after which Modal ends a sandbox, whatever becomes of this installation; 24h at most"`
	ModalServer      string        `env:"MODAL_SERVER_URL" doc:"server of the provider modal, with its port; default https://api.modal.com:443"`
}

// modal is what the provider modal is opened with.
func (c Worker) modal(log *slog.Logger) modal.Config {
	return modal.Config{
		TokenID: c.ModalID, TokenSecret: c.ModalSecret, Environment: c.ModalEnvironment, App: c.ModalApp,
		Image: c.ModalImage, Life: c.ModalLife, Server: c.ModalServer, Fleet: c.Fleet, Logger: log,
	}
}
