package jobs

import (
	"context"
	"maps"
	"slices"
	"strings"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// mostPlaces bounds a fallback order.
const mostPlaces = 8

// order is the providers that a wish leads to, the first choice first: its own, its template's, its tenant's or the
// server's.
func (c *Client) order(
	ctx context.Context,
	wish CreateSandbox,
	t models.Template,
	tenantID string,
) (field string, names []string, err error) {
	switch {
	case wish.Provider != "" && len(wish.Providers) > 0:
		return "providers", nil, kind.Invalid("providers", "give either provider or providers, the list of them in order")
	case wish.Provider != "":
		return "provider", []string{wish.Provider}, nil
	case len(wish.Providers) > 0:
		return "providers", wish.Providers, nil
	case len(t.Definition.Providers) > 0:
		return "template", t.Definition.Providers, nil
	case len(c.catalog.Providers) > 1: // else there is no choice
		names, err = c.store.ProvidersOf(ctx, tenantID)
	}
	if len(names) == 0 {
		names = c.catalog.Providers[:1]
	}
	return "tenant", names, err
}

// checkOrder says what is wrong with a list of providers.
func (k Catalog) checkOrder(field string, names []string) error {
	if len(names) > mostPlaces {
		return kind.Invalid(field, "names %d providers; the limit is %d", len(names), mostPlaces)
	}
	for i, name := range names {
		if !slices.Contains(k.Providers, name) {
			return kind.Invalid(field, "unknown provider %.100q; this server has %v", name, k.Providers)
		}
		if slices.Contains(names[:i], name) {
			return kind.Invalid(field, "names %s twice; leave one out", name)
		}
	}
	return nil
}

// CheckProviders says what is wrong with a list of providers, as an *InvalidError.
func (c *Client) CheckProviders(names []string) error {
	return c.catalog.checkOrder("providers", names)
}

// CheckProviderKeys says what is wrong with a tenant's keys of providers, as an *InvalidError.
func (c *Client) CheckProviderKeys(keys models.ProviderKeys) error {
	for _, provider := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(c.catalog.Keyed, provider) {
			return kind.Invalid("provider_keys", "provider %.100q takes no key; there are %v", provider, c.catalog.Keyed)
		}
		if name := keys[provider]; name != "" && !kind.SecretName.MatchString(name) {
			return kind.Invalid("provider_keys", "has no secret name for %s; give a name, never the key itself", provider)
		}
	}
	return nil
}

// places finds what a wish, or its template t, is at each provider in its order.
func (c *Client) places(
	ctx context.Context,
	wish CreateSandbox,
	t models.Template,
	tenantID string,
) ([]kind.Place, error) {
	field, names, err := c.order(ctx, wish, t, tenantID)
	if err == nil {
		err = c.catalog.checkOrder(field, names)
	}
	if err != nil {
		return nil, err
	}
	places := make([]kind.Place, len(names))
	for i, name := range names {
		image, err := c.catalog.imageAt(name, wish, t)
		if err != nil {
			return nil, err
		}
		if t.TenantID != nil || wish.Image != "" { // an older version may have taken any image for the template
			if err := c.mayHave(ctx, tenantID, name, image, wish.Image != ""); err != nil {
				return nil, err
			}
		}
		places[i] = kind.Place{Provider: name, Image: image}
	}
	return places, nil
}

// imageAt is what a wish, or its template t, is called at a provider.
func (k Catalog) imageAt(provider string, wish CreateSandbox, t models.Template) (string, error) {
	fromImages := k.able(provider).Images != providers.Unsupported
	named := t.Definition.Names[provider]
	if t.Name != "" && named == "" {
		named = k.Names[provider+"/"+t.Name]
	}
	switch {
	case wish.Image != "" && !fromImages:
		return "", kind.Invalid("image", "provider %s makes no sandboxes from images; give a template", provider)
	case wish.Image != "":
		return wish.Image, nil
	case named != "":
		return named, nil
	case fromImages:
		return t.Image, nil
	case t.Name == k.Template: // what nobody has asked for
		return "", nil
	}
	return "", kind.Invalid(
		"template",
		"template %s has no name at provider %s; add it to names of the template, or ask your operator "+
			"to add it to PROVIDER_TEMPLATES",
		t.Name,
		provider,
	)
}

// mayHave refuses an image, or a name of a template at a provider, that the tenant may not use.
func (c *Client) mayHave(ctx context.Context, tenantID, provider, image string, asked bool) error {
	field := "template"
	if asked {
		field = "image"
	}
	if c.catalog.able(provider).Images == providers.Unsupported {
		return c.catalog.checkName(field, provider, image)
	}
	return c.images.Check(ctx, tenantID, field, image)
}

// checkName refuses a name at a provider that the operator has not listed: its account there may hold more than is
// meant for all.
func (k Catalog) checkName(field, provider, name string) error {
	if name == "" {
		return nil
	}
	var listed []string
	for at, known := range k.Names {
		if strings.HasPrefix(at, provider+"/") {
			listed = append(listed, known)
		}
	}
	if slices.Contains(listed, name) {
		return nil
	}
	slices.Sort(listed)
	return kind.Invalid(
		field,
		"%.100q at provider %s is not allowed on this server; use one of %v, or ask your operator to add it to "+
			"PROVIDER_TEMPLATES",
		name,
		provider,
		slices.Compact(listed),
	)
}

// able is what a provider can do; of one that the catalog says nothing about, everything.
func (k Catalog) able(provider string) providers.Capabilities {
	for _, c := range k.Able {
		if c.Provider == provider {
			return c
		}
	}
	return providers.Capabilities{Provider: provider}
}
