"""acker-redis: Apache Storm's acker as a service on Redis."""
