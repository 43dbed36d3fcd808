"""Where the versioned part of the service begins."""

V1 = "/api/v1"
