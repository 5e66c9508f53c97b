package web

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"sandyard/providers"
)

// ProviderList says what the server's providers can do.
type ProviderList struct {
	Providers []providers.Capabilities `json:"providers"`
}

// Template is a named environment.
type Template struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	Default bool   `json:"default" doc:"Taken where a request names neither template nor image"`
}

// TemplateList is what sandboxes may be made from.
type TemplateList struct {
	Templates []Template `json:"templates"`
}

// WebhookSecret signs a tenant's callbacks.
type WebhookSecret struct {
	Secret string `json:"secret" doc:"whsec_ and base64, as the libraries of Standard Webhooks take it"`
}

func (s *Server) addCatalog() {
	register(s, operation("list-providers", http.MethodGet, "/v1/providers", tagServer, "List the providers and what they can do"), s.listProviders)
	register(s, operation("list-templates", http.MethodGet, "/v1/templates", tagServer, "List the templates"), s.listTemplates)
	register(s, operation("get-webhook-secret", http.MethodGet, "/v1/webhooks/secret", tagServer, "Get the secret that signs your callbacks"), s.webhookSecret)
}

func (s *Server) listProviders(context.Context, *struct{}) (*output[ProviderList], error) {
	return &output[ProviderList]{ProviderList{append([]providers.Capabilities{}, s.caps...)}}, nil
}

func (s *Server) listTemplates(context.Context, *struct{}) (*output[TemplateList], error) {
	catalog := s.jobs.Catalog()
	list := TemplateList{Templates: []Template{}}
	for _, name := range slices.Sorted(maps.Keys(catalog.Templates)) {
		list.Templates = append(list.Templates, Template{name, catalog.Templates[name], name == catalog.Template})
	}
	return &output[TemplateList]{list}, nil
}

func (s *Server) webhookSecret(ctx context.Context, _ *struct{}) (*output[WebhookSecret], error) {
	t, err := s.store.Tenant(ctx, requestOf(ctx).tenant)
	if err != nil {
		return nil, err
	}
	return &output[WebhookSecret]{WebhookSecret{t.WebhookSecret}}, nil
}
