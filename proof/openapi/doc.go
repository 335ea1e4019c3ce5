// Package openapi has others judge the OpenAPI document: linters, and generators whose clients then pay an order.
package openapi
