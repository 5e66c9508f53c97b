package v1

import (
	"context"
	"slices"
	"time"

	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// ProviderList says what the providers that requests may name can do.
type ProviderList struct {
	Providers []Provider `json:"providers"`
}

// Provider is the document of a provider.
type Provider struct {
	providers.Capabilities
	Workers   int        `json:"workers" doc:"Live workers of this provider; without any, jobs wait"`
	Available bool       `json:"available" doc:"The provider answers at least one live worker and takes the operator's key; else its jobs wait"`
	Since     *time.Time `json:"unavailable_since,omitempty" doc:"Since when it has answered no worker"`
	Reason    string     `json:"reason,omitempty" doc:"Error code that workers get while they cannot use it"`
	ErrorRate float64    `json:"error_rate" doc:"Share of the latest attempts at jobs that failed by the provider's fault, from 0 to 1; of up to 200 attempts per worker"`
	CreateMS  int64      `json:"create_ms,omitempty" doc:"Median time of the latest creates; absent: no create yet"`
}

// WebhookSecret signs a tenant's callbacks.
type WebhookSecret struct {
	Secret string `json:"secret" doc:"whsec_ and base64, the format that Standard Webhooks libraries accept"`
}

// catalog has the routes of what the server offers.
type catalog struct{ *core }

func (s *catalog) addCatalog() {
	rest.Route(s.api, "list-providers", "GET /v1/providers", tagServer,
		"List the providers and what they can do", s.listProviders)
	rest.Route(s.api, "get-webhook-secret", "GET /v1/webhooks/secret", tagServer,
		"Get the secret that signs your callbacks", s.webhookSecret)
}

func (s *catalog) listProviders(ctx context.Context, _ *struct{}) (*rest.Output[ProviderList], error) {
	live, err := s.Store.ProviderStates(ctx)
	if err != nil {
		return nil, err
	}
	list := ProviderList{Providers: []Provider{}}
	for _, c := range s.Capabilities {
		if slices.Contains(s.Jobs.Catalog().Providers, c.Provider) {
			list.Providers = append(list.Providers, providerOf(c, live[c.Provider]))
		}
	}
	return rest.OK(list), nil
}

func providerOf(c providers.Capabilities, now models.ProviderState) Provider {
	p := Provider{
		Capabilities: c, Workers: now.Workers, Available: now.Workers > now.Away, Since: now.AwaySince, Reason: now.Reason,
		CreateMS: now.CreateMS,
	}
	if now.Attempts > 0 {
		p.ErrorRate = float64(now.Failed) / float64(now.Attempts)
	}
	return p
}

func (s *catalog) webhookSecret(ctx context.Context, _ *struct{}) (*rest.Output[WebhookSecret], error) {
	t, err := s.Store.Tenant(ctx, middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	return rest.OK(WebhookSecret{t.WebhookSecret}), nil
}
