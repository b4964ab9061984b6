"""RocketMQ's gRPC protocol, ``apache.rocketmq.v2.MessagingService`` (extra ``grpc``)."""
