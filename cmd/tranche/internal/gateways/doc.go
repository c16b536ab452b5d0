// Package gateways writes configurations of gateways that ask a node before they let a request through.
//
//	Envoy      asks over gRPC, before the request goes on
//	nginx      auth_request: a sub-request that takes only 2xx, 401 and 403 for an answer
//	HAProxy    a Lua action that asks, and answers the caller itself
//	Caddy      forward_auth: what is not 2xx is the caller's answer, as it is
//	Traefik    ForwardAuth: the same
//
// Each block is complete, explains its lines, and fails closed: a node that is down, slow or unsure is a refusal. The blocks
// stand as templates in the folder blocks.
package gateways
