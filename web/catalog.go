package web

import (
	"context"
	"net/http"
	"slices"

	"sandyard/providers"
	"sandyard/web/middleware"
)

// ProviderList says what the providers that requests may name can do.
type ProviderList struct {
	Providers []Provider `json:"providers"`
}

// Provider is the document of a provider.
type Provider struct {
	providers.Capabilities
	Workers int `json:"workers" doc:"Live workers of this provider; without any, jobs wait"`
}

// WebhookSecret signs a tenant's callbacks.
type WebhookSecret struct {
	Secret string `json:"secret" doc:"whsec_ and base64, the format that Standard Webhooks libraries accept"`
}

func (s *Server) addCatalog() {
	register(s, operation("list-providers", http.MethodGet, "/v1/providers", tagServer, "List the providers and what they can do"), s.listProviders)
	register(s, operation("get-webhook-secret", http.MethodGet, "/v1/webhooks/secret", tagServer, "Get the secret that signs your callbacks"), s.webhookSecret)
}

func (s *Server) listProviders(ctx context.Context, _ *struct{}) (*output[ProviderList], error) {
	workers, err := s.store.LiveWorkers(ctx)
	if err != nil {
		return nil, err
	}
	list := ProviderList{Providers: []Provider{}}
	for _, c := range s.caps {
		if slices.Contains(s.jobs.Catalog().Providers, c.Provider) {
			list.Providers = append(list.Providers, Provider{Capabilities: c, Workers: workers[c.Provider]})
		}
	}
	return &output[ProviderList]{list}, nil
}

func (s *Server) webhookSecret(ctx context.Context, _ *struct{}) (*output[WebhookSecret], error) {
	t, err := s.store.Tenant(ctx, middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	return &output[WebhookSecret]{WebhookSecret{t.WebhookSecret}}, nil
}
