package account

import (
	"context"
	"net/http"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// Tenant is the document of a tenant.
type Tenant struct {
	Name          string   `json:"name"`
	LiveSandboxes int      `json:"live_sandboxes"`
	MaxSandboxes  int      `json:"max_sandboxes" doc:"Live sandboxes at once"`
	MaxQueued     int      `json:"max_queued" doc:"Waiting jobs at once"`
	MaxCPUs       *float64 `json:"max_cpus" doc:"Cores of all live sandboxes together; null = no limit"`
	MaxMemoryMiB  *int64   `json:"max_memory_mib" doc:"Memory of all live sandboxes together, paused ones included; null = no limit"`
	JobRate       *float64 `json:"job_rate" doc:"Submissions a second; null = no limit"`
	JobBurst      *int     `json:"job_burst" doc:"Submissions at once, where there is a rate; null = those of one second"`
	Providers     []string `json:"providers" doc:"Providers of sandboxes whose request and template name none, in the order in which they are asked; empty: the server's"`
	// ProviderKeys are names of secrets, not values.
	ProviderKeys map[string]string `json:"provider_keys" doc:"Names of the tenant's secrets that hold its own keys of providers, by the names of these; of others, the operator's key counts"`
	CreatedAt    time.Time         `json:"created_at"`
}

// TenantList is all tenants.
type TenantList struct {
	Tenants []Tenant `json:"tenants" doc:"By name, at most 10000"`
}

// NewTenantBody is the body of a request for a tenant.
type NewTenantBody struct {
	Name string `json:"name" minLength:"1" maxLength:"63" doc:"a-z, 0-9 and -; begins with a letter or a digit"`
	CeilingsBody
}

// MadeTenant is a new tenant, with the text of its first key.
type MadeTenant struct {
	Tenant Tenant `json:"tenant"`
	Key    string `json:"key" doc:"Its first API key, with the scopes sandboxes and admin. It is not stored and cannot be shown again"`
}

type newTenantInput struct{ Body NewTenantBody }

type tenantInput struct {
	Name string `path:"name" maxLength:"63"`
}

type changeTenantInput struct {
	Name string `path:"name" maxLength:"63"`
	Body ChangeTenantBody
}

// ChangeTenantBody is what changes of a tenant.
type ChangeTenantBody struct {
	CeilingsBody
	Providers    *[]string         `json:"providers,omitempty" maxItems:"8" doc:"Providers of sandboxes whose request and template name none, in the order in which they are asked; empty: the server's"`
	ProviderKeys map[string]string `json:"provider_keys,omitempty" maxProperties:"8" doc:"Names of the tenant's secrets that hold its own keys of providers, by the names of these; an empty name removes one. They count for sandboxes that are made from now on"`
}

// listedTenants is how many tenants are listed.
const listedTenants = 10000

func (s *Server) addTenants() {
	rest.Route(s.api, "list-tenants", "GET /v1/tenants", Tag, "List all tenants (scope operator)", s.listTenants)
	create := rest.Operation("create-tenant", "POST /v1/tenants", Tag,
		"Create a tenant with its first API key (scope operator)")
	create.DefaultStatus = http.StatusCreated
	rest.Register(s.api, create, s.createTenant)
	rest.Route(s.api, "get-tenant", "GET /v1/tenants/{name}", Tag, "Get a tenant (scope operator)", s.getTenant)
	rest.Route(s.api, "change-tenant", "PATCH /v1/tenants/{name}", Tag,
		"Change a tenant's limits, providers or provider_keys (scope operator): they count from the next request on",
		s.changeTenant)
}

func tenantDoc(t models.ListedTenant) Tenant {
	return Tenant{
		Name: t.ID, LiveSandboxes: t.Live, MaxSandboxes: t.MaxSandboxes, MaxQueued: t.MaxQueued,
		MaxCPUs: t.Quota.MaxCPUs, MaxMemoryMiB: t.Quota.MaxMemoryMiB, JobRate: t.Rate.JobRate, JobBurst: t.Rate.JobBurst,
		CreatedAt: t.CreatedAt,
		Providers: append([]string{}, t.Providers...), ProviderKeys: t.ProviderKeys,
	}
}

func (s *Server) listTenants(ctx context.Context, _ *struct{}) (*rest.Output[TenantList], error) {
	all, err := s.store.Tenants(ctx, listedTenants)
	return rest.OK(TenantList{rest.Docs(all, tenantDoc)}), err
}

func (s *Server) createTenant(ctx context.Context, in *newTenantInput) (*rest.Output[MadeTenant], error) {
	key, err := s.store.CreateTenant(ctx, in.Body.Name, in.Body.ceilings())
	if err != nil {
		return nil, err
	}
	middleware.RequestOf(ctx).Target = in.Body.Name
	t, err := s.store.ListedTenant(ctx, in.Body.Name)
	return rest.OK(MadeTenant{tenantDoc(t), key}), err
}

func (s *Server) getTenant(ctx context.Context, in *tenantInput) (*rest.Output[Tenant], error) {
	t, err := s.store.ListedTenant(ctx, in.Name)
	return rest.OK(tenantDoc(t)), err
}

func (s *Server) changeTenant(ctx context.Context, in *changeTenantInput) (*rest.Output[Tenant], error) {
	limits, places, keys := in.Body.ceilings(), in.Body.Providers, in.Body.ProviderKeys
	if len(limits) == 0 && places == nil && len(keys) == 0 {
		return nil, problem.Invalid("body", "changes nothing; give a limit, providers or provider_keys")
	}
	if places != nil {
		if err := s.jobs.CheckProviders(*places); err != nil {
			return nil, err
		}
	}
	if err := s.jobs.CheckProviderKeys(keys); err != nil {
		return nil, err
	}
	if len(limits) > 0 { // first: a limit may be refused
		if err := s.store.ChangeTenant(ctx, in.Name, limits); err != nil {
			return nil, err
		}
	}
	if len(keys) > 0 {
		err := s.store.SetProviderKeys(ctx, in.Name, keys)
		if models.IsNoSecret(err) {
			return nil, problem.Invalid("body.provider_keys", err.Error())
		}
		if err != nil {
			return nil, err
		}
	}
	if places != nil {
		if err := s.store.SetProviders(ctx, in.Name, *places); err != nil {
			return nil, err
		}
	}
	return s.getTenant(ctx, &tenantInput{in.Name})
}
