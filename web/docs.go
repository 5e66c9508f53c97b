package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/gofiber/fiber/v2"
)

// The reference page with its renderer, which needs no other host, and the pages for agents.
//
//go:embed docs/index.html docs/redoc.standalone.js docs/SKILL.md docs/llms.txt
var docs embed.FS

// docsPolicy lets the page load nothing from elsewhere.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; " +
	"connect-src 'self'; font-src 'self' data:; worker-src blob:; base-uri 'none'; frame-ancestors 'none'"

// addDocs publishes the API's description as it now stands; it comes after every other operation.
func (s *Server) addDocs() error {
	api := s.v1.Document()
	document, err := json.Marshal(api)
	if err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	yaml, err := api.YAML()
	if err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	for name, d := range s.contracts {
		raw, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("write the OpenAPI document of %s: %w", name, err)
		}
		s.publish("/openapi/"+name+".json", "application/json", "no-cache", raw)
	}
	s.publish("/openapi.json", "application/json", "no-cache", document)
	s.publish("/openapi.yaml", "application/yaml", "no-cache", yaml)
	for _, file := range []struct{ path, name, media, caching string }{
		{"/docs", "index.html", fiber.MIMETextHTMLCharsetUTF8, "no-cache"},
		{"/docs/redoc.standalone.js", "redoc.standalone.js", "text/javascript; charset=utf-8", "max-age=86400"},
		{"/llms.txt", "llms.txt", fiber.MIMETextPlainCharsetUTF8, "no-cache"},
		{"/skill.md", "SKILL.md", "text/markdown; charset=utf-8", "no-cache"},
	} {
		content, err := docs.ReadFile("docs/" + file.name)
		if err != nil {
			return fmt.Errorf("read the page %s: %w", file.path, err)
		}
		s.publish(file.path, file.media, file.caching, content)
	}
	s.app.Get("/", func(c *fiber.Ctx) error { return c.Redirect("/docs", fiber.StatusFound) })
	s.app.Get("/favicon.ico", func(c *fiber.Ctx) error { // browsers ask for it unasked
		c.Set(fiber.HeaderCacheControl, "max-age=86400")
		return c.SendStatus(fiber.StatusNoContent)
	})
	return nil
}

func (s *Server) publish(path, media, caching string, content []byte) {
	zipped := sync.OnceValue(func() []byte { return gzipOf(content) })
	s.app.Get(path, func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderContentType, media)
		c.Set(fiber.HeaderCacheControl, caching)
		c.Set(fiber.HeaderContentSecurityPolicy, docsPolicy)
		c.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
		if c.Get(fiber.HeaderAcceptEncoding) != "" && c.AcceptsEncodings("gzip") == "gzip" {
			c.Set(fiber.HeaderContentEncoding, "gzip")
			return c.Send(zipped())
		}
		return c.Send(content)
	})
}

// gzipOf compresses what is sent again and again.
func gzipOf(content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(content) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}
