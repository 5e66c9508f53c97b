package web

import (
	"context"
	"net/http"

	"sandyard/providers"
)

// ProviderList says what the server's providers can do.
type ProviderList struct {
	Providers []providers.Capabilities `json:"providers"`
}

// WebhookSecret signs a tenant's callbacks.
type WebhookSecret struct {
	Secret string `json:"secret" doc:"whsec_ and base64, as the libraries of Standard Webhooks take it"`
}

func (s *Server) addCatalog() {
	register(s, operation("list-providers", http.MethodGet, "/v1/providers", tagServer, "List the providers and what they can do"), s.listProviders)
	register(s, operation("get-webhook-secret", http.MethodGet, "/v1/webhooks/secret", tagServer, "Get the secret that signs your callbacks"), s.webhookSecret)
}

func (s *Server) listProviders(context.Context, *struct{}) (*output[ProviderList], error) {
	return &output[ProviderList]{ProviderList{append([]providers.Capabilities{}, s.caps...)}}, nil
}

func (s *Server) webhookSecret(ctx context.Context, _ *struct{}) (*output[WebhookSecret], error) {
	t, err := s.store.Tenant(ctx, requestOf(ctx).tenant)
	if err != nil {
		return nil, err
	}
	return &output[WebhookSecret]{WebhookSecret{t.WebhookSecret}}, nil
}
