package v1

import (
	"context"
	"net/http"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// Template is the document of a named environment.
type Template struct {
	Name     string `json:"name"`
	Image    string `json:"image"`
	Default  bool   `json:"default" doc:"Used if a request names neither template nor image"`
	Shared   bool   `json:"shared" doc:"Available to every tenant; your own template of the same name takes precedence"`
	Declared bool   `json:"declared" doc:"Declared in the server's configuration, which recreates it if it is deleted"`
	Version  int    `json:"version" doc:"Number of changes; a sandbox keeps the version it was created from"`
	models.Definition
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// TemplatePage is one page of what sandboxes may be made from.
type TemplatePage struct {
	Templates  []Template `json:"templates"`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

// TemplateBody says what a template is to be.
type TemplateBody struct {
	Image  string `json:"image" maxLength:"512" doc:"A container image on the workers' engines, as REPOSITORY:TAG: of a shared template, of one of your builds, or allowed by the operator (SANDBOX_IMAGES)"`
	Shared bool   `json:"shared,omitempty" doc:"For all tenants; requires a key with the scope operator"`
	models.Definition
}

// NewTemplate is the body that makes a template.
type NewTemplate struct {
	Name string `json:"name" maxLength:"63" doc:"Lower-case letters, digits and ._-"`
	TemplateBody
}

type newTemplateInput struct{ Body NewTemplate }

type putTemplateInput struct {
	Name string `path:"name"`
	Body TemplateBody
}

// listTemplatesInput chooses a page by a name: what is added meanwhile stands where its name has it.
type listTemplatesInput struct {
	Cursor string `query:"cursor" pattern:"^[a-z0-9][a-z0-9._-]{0,62}$" patternDescription:"a next_cursor" doc:"The next_cursor of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}

type templateInput struct {
	Name string `path:"name"`
}

type deleteTemplateInput struct {
	Name   string `path:"name"`
	Shared bool   `query:"shared" doc:"The shared template; requires a key with the scope operator"`
}

// DeletedTemplate says what a template has left behind.
type DeletedTemplate struct {
	Name      string `json:"name"`
	Sandboxes int    `json:"sandboxes" doc:"Live sandboxes created from it; they continue"`
}

func (s *templates) addTemplates() {
	rest.Route(s.api, "list-templates", "GET /v1/templates", tagTemplates,
		"List the templates, by name", s.listTemplates)
	rest.Route(s.api, "get-template", "GET /v1/templates/{name}", tagTemplates, "Get a template", s.getTemplate)
	create := rest.Operation("create-template", "POST /v1/templates", tagTemplates, "Create a template")
	create.DefaultStatus = http.StatusCreated
	rest.Register(s.api, create, s.createTemplate)
	put := rest.Operation("put-template", "PUT /v1/templates/{name}", tagTemplates, "Create or replace a template")
	put.Description = "Replaces the whole template. New sandboxes use the new settings; live ones " +
		"keep those they were created from. The quota max_templates limits a tenant's own templates."
	rest.Register(s.api, put, s.putTemplate)
	rest.Route(s.api, "delete-template", "DELETE /v1/templates/{name}", tagTemplates,
		"Delete a template", s.deleteTemplate)
}

func (s *templates) templateDoc(t models.Template) Template {
	doc := Template{
		Name: t.Name, Image: t.Image, Shared: t.TenantID == nil, Declared: t.Declared != nil || t.ID == "",
		Version: t.Version,
		Default: t.Name == s.Jobs.Catalog().Template, Definition: t.Definition,
	}
	if !t.UpdatedAt.IsZero() {
		doc.UpdatedAt = &t.UpdatedAt
	}
	return doc
}

func (s *templates) listTemplates(ctx context.Context, in *listTemplatesInput) (*rest.Output[TemplatePage], error) {
	list, err := s.Jobs.Templates(ctx, middleware.RequestOf(ctx).Tenant, in.Cursor, in.Limit+1)
	page, next := rest.CutPage(list, in.Limit, func(t models.Template) string { return t.Name })
	return rest.OK(TemplatePage{rest.Docs(page, s.templateDoc), next}), err
}

func (s *templates) getTemplate(ctx context.Context, in *templateInput) (*rest.Output[Template], error) {
	t, err := s.Jobs.Template(ctx, middleware.RequestOf(ctx).Tenant, in.Name)
	return rest.OK(s.templateDoc(t)), err
}

// owner is whose templates a request may change.
func owner(ctx context.Context, shared bool) (models.Owner, error) {
	if !shared {
		return models.Owner{Tenant: middleware.RequestOf(ctx).Tenant}, nil
	}
	return models.Owner{}, operatorOnly(ctx)
}

func (s *templates) createTemplate(ctx context.Context, in *newTemplateInput) (*rest.Output[Template], error) {
	out, err := s.writeTemplate(ctx, in.Body.Name, in.Body.TemplateBody, s.Store.CreateTemplate)
	if err == nil {
		middleware.RequestOf(ctx).Target = in.Body.Name
	}
	return out, err
}

func (s *templates) putTemplate(ctx context.Context, in *putTemplateInput) (*rest.Output[Template], error) {
	return s.writeTemplate(ctx, in.Name, in.Body, s.Store.PutTemplate)
}

func (s *templates) writeTemplate(ctx context.Context, name string, body TemplateBody,
	write func(context.Context, models.Owner, models.Template) (models.Template, error),
) (*rest.Output[Template], error) {
	o, err := owner(ctx, body.Shared)
	if err != nil {
		return nil, err
	}
	if body.Pool != nil { // it takes memory of the nodes that counts towards no tenant's quota
		if err := operatorOnly(ctx); err != nil {
			return nil, err
		}
	}
	t := models.Template{Name: name, Image: body.Image, Definition: body.Definition}
	if err := s.Jobs.CheckTemplate(ctx, o, t); err != nil {
		return nil, err
	}
	t, err = write(ctx, o, t)
	return rest.OK(s.templateDoc(t)), err
}

func (s *templates) deleteTemplate(
	ctx context.Context,
	in *deleteTemplateInput,
) (*rest.Output[DeletedTemplate], error) {
	o, err := owner(ctx, in.Shared)
	if err != nil {
		return nil, err
	}
	inUse, err := s.Store.DeleteTemplate(ctx, o, in.Name)
	return rest.OK(DeletedTemplate{in.Name, inUse}), err
}
